//! Processes that `canonc bench peers` waits for.

use std::process::Command;
use std::time::Duration;

use models::bench::process::Contender;

#[test]
fn a_process_that_is_never_ready_is_not_waited_for() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo no JSON; exec sleep 60"]);
    let limit = Duration::from_millis(300);
    let error = Contender::start_within(limit, "PyTorch", &mut command).err().unwrap();
    let message = format!("{error:?}");
    assert!(message.contains("PyTorch was started, but did not say that it is ready"), "{message}");
}
