//! Messages on standard input and output. A body that is no message is answered with an error, and the next one is read.

use std::io::{self, BufRead, Read, Write};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use lsp_server::{Connection, ErrorCode, Message};
use serde_json::{Value, json};

/// Messages that wait in either direction.
const WAITING: usize = 64;
/// Most bytes of a message: a document of the largest size, with every character escaped.
const MAX_BODY: u64 = 32 << 20;
/// Most bytes of a line of a header.
const MAX_HEADER: u64 = 8 << 10;

/// A connection, and the thread that writes what is sent through it.
pub(crate) fn stdio() -> io::Result<(Connection, JoinHandle<()>)> {
    let (sender, outgoing) = bounded(WAITING);
    let (incoming, receiver) = bounded(WAITING);
    thread::Builder::new().name("reader".to_owned()).spawn(move || {
        // A client that breaks the protocol is treated like one that is gone.
        let ended = read(&mut io::stdin().lock(), &mut io::stdout(), &incoming);
        if let Err(error) = ended.as_ref()
            && error.kind() == io::ErrorKind::InvalidData
        {
            let _ =
                writeln!(io::stderr(), "the input is not the language server protocol: {error}");
        }
    })?;
    let writer =
        thread::Builder::new().name("writer".to_owned()).spawn(move || write(&outgoing))?;
    Ok((Connection { sender, receiver }, writer))
}

fn write(outgoing: &Receiver<Message>) {
    for message in outgoing {
        if message.write(&mut io::stdout().lock()).is_err() {
            return;
        }
    }
}

/// Passes on messages up to `exit` or the end of the input, and answers what is no message. An error if the input is not the
/// protocol.
pub fn read(
    from: &mut dyn BufRead,
    to: &mut dyn Write,
    incoming: &Sender<Message>,
) -> io::Result<()> {
    while let Some(body) = body(from)? {
        match message(&body) {
            Ok(message) => {
                let is_exit = matches!(&message, Message::Notification(notification) if notification.method == "exit");
                if incoming.send(message).is_err() || is_exit {
                    return Ok(());
                }
            }
            Err(refusal) => {
                let text = refusal.to_string();
                // In one piece, so that no message of the other thread comes between.
                let frame = format!("Content-Length: {}\r\n\r\n{text}", text.len());
                to.write_all(frame.as_bytes())?;
                to.flush()?;
            }
        }
    }
    Ok(())
}

/// The bytes of a message; `None` at the end of the input.
fn body(from: &mut dyn BufRead) -> io::Result<Option<Vec<u8>>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut length = None;
    loop {
        let mut line = Vec::new();
        if from.take(MAX_HEADER).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without `:`"))?;
        if name.eq_ignore_ascii_case("content-length") {
            let bytes = value.trim().parse::<u64>().ok().filter(|bytes| *bytes <= MAX_BODY);
            length = Some(bytes.ok_or_else(|| invalid("an impossible length"))?);
        }
    }
    let length = length.ok_or_else(|| invalid("a message without its length"))?;
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body)?;
    Ok((body.len() as u64 == length).then_some(body))
}

/// A message, or the answer to what is none.
fn message(body: &[u8]) -> Result<Message, Value> {
    let refusal = |id: Value, code: ErrorCode, message: String| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i32, "message": message } });
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        refusal(Value::Null, ErrorCode::ParseError, format!("the message is not JSON: {error}"))
    })?;
    // The protocol's numbers have 32 bits.
    let is_small = |id: &Value| id.as_i64().is_some_and(|id| i32::try_from(id).is_ok());
    let id = value.get("id").filter(|id| id.is_string() || id.is_number()).cloned();
    let has_other_id =
        value.get("id").is_some_and(|id| !id.is_string() && !is_small(id) && !id.is_null());
    let invalid = match &value {
        Value::Array(_) => "batches are not part of the protocol: send one message at a time",
        Value::Object(_) => "neither a request, nor an answer, nor a notification",
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => "not an object",
    };
    let read = if has_other_id { None } else { serde_json::from_value(value).ok() };
    read.ok_or_else(|| {
        refusal(id.unwrap_or(Value::Null), ErrorCode::InvalidRequest, invalid.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::*;

    /// What is passed on and what is answered.
    fn exchange(bodies: &[&str]) -> (Vec<Message>, String) {
        let (incoming, received) = unbounded();
        let mut answers = Vec::new();
        let frame: String = bodies
            .iter()
            .map(|body| format!("content-length: {}\r\nX: y\r\n\r\n{body}", body.len()))
            .collect();
        read(&mut frame.as_bytes(), &mut answers, &incoming).unwrap();
        (received.try_iter().collect(), String::from_utf8(answers).unwrap())
    }

    #[test]
    fn a_body_that_is_no_message_is_answered_and_the_next_one_is_read() {
        let good = r#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#;
        for (bad, code, id) in [
            (r#"{"a":"#, "-32700", "null"),
            ("", "-32700", "null"),
            ("\u{0}", "-32700", "null"),
            (r#"[{"jsonrpc":"2.0","id":7,"method":"foo"}]"#, "-32600", "null"),
            ("[]", "-32600", "null"),
            ("7", "-32600", "null"),
            (r#"{"id":7}"#, "-32600", "7"),
            (r#"{"id":"a","method":7}"#, "-32600", "\"a\""),
            (r#"{"id":{},"method":"foo"}"#, "-32600", "null"),
            (r#"{"id":99999999999,"method":"foo"}"#, "-32600", "99999999999"),
        ] {
            let (passed, answers) = exchange(&[bad, good]);
            assert!(matches!(passed.as_slice(), [Message::Notification(_)]), "{bad}: {passed:?}");
            let (_, answer) = answers.split_once("\r\n\r\n").unwrap();
            let answer: Value = serde_json::from_str(answer).unwrap();
            assert_eq!(answer["error"]["code"].to_string(), code, "{bad}");
            assert_eq!(answer["id"].to_string(), id, "{bad}");
        }
    }

    #[test]
    fn reading_ends_with_the_input_and_after_exit() {
        let exit = r#"{"jsonrpc":"2.0","method":"exit"}"#;
        let (passed, answers) = exchange(&[exit, "no message"]);
        assert!(passed.len() == 1 && answers.is_empty());
        let (incoming, _received) = unbounded();
        let read = |frame: &str| read(&mut frame.as_bytes(), &mut Vec::new(), &incoming);
        assert!(read("").is_ok() && read("Content-Length: 9\r\n\r\n{").is_ok());
        for broken in [
            "Content-Length: 99999999999999\r\n\r\n",
            "Content-Length: -1\r\n\r\n",
            "Content-Type: x\r\n\r\n{}",
            "no header\r\n\r\n",
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }
}
