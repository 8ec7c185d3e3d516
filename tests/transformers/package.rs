//! `canonc.load(RUN).weights(framework="torch")` with a real PyTorch. `make test-wheel` tests the rest of the package.

use std::fs;
use std::path::Path;

use super::{canonc, python, run};

#[test]
fn a_run_s_weights_are_tensors_of_torch() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    canonc(root, &["new", "."]);
    let recipe = root.join("recipes/depo_first.toml");
    let text = fs::read_to_string(&recipe).unwrap();
    let text = text.replace("steps = 600", "steps = 2").replace("warmup = 60", "warmup = 1");
    fs::write(&recipe, text.replace("every = 100", "every = 2")).unwrap();
    canonc(root, &["build", "recipes/depo_first.toml"]);
    canonc(root, &["run", "--lock", "lockfiles/depo_first.lock"]);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let script = "
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import canonc, torch
run = canonc.load(sys.argv[2])
tensors, arrays = run.weights(framework='torch'), run.weights()
assert list(tensors) and set(tensors) == set(arrays), (list(tensors), list(arrays))
assert all(tensor.dtype == torch.float32 for tensor in tensors.values())
assert all((tensor.numpy() == arrays[name]).all() for name, tensor in tensors.items())
model = torch.nn.Embedding.from_pretrained(tensors['embed'])
assert model(torch.tensor([3])).shape == (1, 64)
";
    let [package, folder] = [package, root.join("runs/depo_first")];
    let words = ["-c", script, &package.to_string_lossy(), &folder.to_string_lossy()];
    run(&python(), &words).unwrap_or_else(|error| panic!("{error}"));
}
