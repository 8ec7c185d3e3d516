# Everything a fresh clone needs. `make` alone lists the targets; cargo alone works after `make libtorch`.
.DEFAULT_GOAL := help
.PHONY: help libtorch build install wheel test-wheel release test test-nightly test-without-ext oracle test-transformers fuzz demo check \
  gpu-kernels gpu-pack faults test-gpu test-serve test-editors grammars vscode deny
CARGO ?= cargo

help: ## this list
	@echo "canonc: make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo "An exported LIBTORCH or LIBTORCH_USE_PYTORCH is used as it is, and nothing is fetched."

ifeq ($(LIBTORCH)$(LIBTORCH_USE_PYTORCH),)
libtorch: ## fetch the CPU libtorch into third_party/ (544 MB, once; python3 and pip)
	@command -v python3 >/dev/null || { \
	  echo "error: python3 is not on PATH, and it is what fetches libtorch" >&2; \
	  echo "help: install python3 and pip and repeat, or export LIBTORCH=/path/to/libtorch" >&2; exit 3; }
	@python3 runtime/fetch-libtorch.py third_party/libtorch
else
libtorch:
	@echo "using the libtorch of $(if $(LIBTORCH_USE_PYTORCH),LIBTORCH_USE_PYTORCH=$(LIBTORCH_USE_PYTORCH),LIBTORCH=$(LIBTORCH))"
endif

build: libtorch ## the release programs, target/release/canonc and canonc-torch (or under CARGO_TARGET_DIR)
	$(CARGO) build --release

# Built where it is used, in an assignment: as an argument, a failed build would be an empty word.
BINARIES ?= $$(tools/packaging/binaries.sh)

wheel: libtorch ## the Python package: target/wheel/canonc-*.whl, without libtorch (docs/install.md)
	binaries="$(BINARIES)" && python/wheel.sh "$$binaries" target/wheel

test-wheel: wheel ## that wheel in fresh environments, with and without PyTorch (544 MB and 1.3 GB of disk, once)
	python/test.sh target/wheel/canonc-*.whl

install: libtorch ## both programs into cargo's bin folder; they use the libtorch of this clone
	$(CARGO) install --locked --path .

release: libtorch ## an archive of programs, documentation and licences: target/release-archive/
	binaries="$(BINARIES)" && tools/packaging/archive.sh "$$binaries" target/release-archive

test: libtorch ## every test that needs no Python environment
	CARGO="$(CARGO)" python3 tools/test.py

test-nightly: libtorch ## the same tests, with ten times as many random cases
	CARGO="$(CARGO)" CANONC_CASES=10 python3 tools/test.py

test-without-ext: libtorch ## a copy of the tree without ext/, built, and its tests
	tools/without_ext.sh

oracle: libtorch ## ids, plans, bits of short runs, help and JSON of all commands against tests/oracle.txt: before and after a refactoring
	$(CARGO) build
	python3 tests/oracle.py --check

test-transformers: libtorch ## exported folders and tokenizers in the real transformers, tokenizers and sentencepiece (their README makes an environment once, of wheels that were fetched by hash: 5 minutes, 6 GB, 9 meanwhile)
	OMP_NUM_THREADS=1 $(CARGO) test --workspace --test transformers --test peers -- --nocapture

test-serve: libtorch ## canonc serve with the real openai client and lm-eval (uses test-transformers' environment, or makes one: 5 minutes, 6 GB)
	$(CARGO) test --workspace --test clients -- --nocapture

gpu-kernels: ## compile the GPU kernels again: gpu/images.bin, kernels.json, table.tsv, build.sha256 (pip, 740 MB once; no GPU needed)
	env=$$(gpu/env.sh) && "$$env/bin/python" gpu/build.py

gpu-pack: libtorch ## what the first run on a GPU needs, in .gpu; with the tree at most 60 MiB (gpu/README.md)
	gpu/pack.sh

test-gpu: ## the GPU kernels in Triton's interpreter, the scripts of a first run, and that the committed images follow from their sources (digests, and a sample compiled again)
	env=$$(gpu/env.sh) && OPENBLAS_NUM_THREADS=1 "$$env/bin/python" -m pytest -q -W ignore -p no:cacheprovider -n auto --dist worksteal gpu/tests && \
	  "$$env/bin/python" gpu/build.py --sample 100

test-editors: ## canonc lsp driven by a Python client, and the tree-sitter grammar (pip, once; no libtorch)
	$(if $(LANGUAGE_SERVER),,$(CARGO) build --no-default-features --features ext)
	env=$$(tools/editors/env.sh) && cd tools/editors && \
	  CANONC="$(abspath $(or $(LANGUAGE_SERVER),$(or $(CARGO_TARGET_DIR),target)/debug/canonc))" \
	  "$$env/bin/python" -m unittest test_client test_grammars
	$(GENERATE) --check

GENERATE = $(CARGO) run --quiet --manifest-path tools/editors/generate/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/generate --

grammars: ## write the grammars of editors again, from the words of the language
	$(CARGO) run --quiet -p canonc-lsp --example grammars
	$(GENERATE)

vscode: ## pack the VS Code extension and install it (node and npm; the program itself is `make build`)
	@command -v npm >/dev/null || { \
	  echo "error: npm is not on PATH, and it fetches the extension's client library" >&2; \
	  echo "help: install node and npm, and repeat" >&2; exit 3; }
	mkdir -p target/vscode && cp -R tools/editors/vscode/. target/vscode/
	cd target/vscode && npm ci --omit=dev --no-audit --no-fund && python3 pack.py
	@command -v code >/dev/null && code --install-extension target/vscode/canonc.vsix || \
	  echo "install target/vscode/canonc.vsix in your editor: Extensions, Install from VSIX"

fuzz: ## a minute of mutated files for all readers (needs a C++ compiler; tools/fuzz/run.sh SECONDS READER... for more)
	tools/fuzz/run.sh

faults: libtorch ## power cuts, errors of the disk at each operation and early signals, hundreds of each (a C compiler, python3; an hour)
	CANONC_CASES=5 $(CARGO) test --workspace --test run_cli run_cli::faults -- --nocapture

demo: libtorch ## prove a Llama and a LlamaCanon differ in nothing else, train both, draw the curves
	$(CARGO) build --release
	$(or $(CARGO_TARGET_DIR),target)/release/canonc demo

check: libtorch ## formatting, lints with libtorch and without, the API documentation, a licence of each crate, locks of Python packages, and that a copy without ext/ compiles
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --test transformers --test clients --test peers -- -D warnings
	$(CARGO) clippy --workspace --all-targets --no-default-features --features ext -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	python3 tools/packaging/licences.py >/dev/null
	python3 tools/packaging/lock_python.py --check
	tools/without_ext.sh check

deny: ## crates against deny.toml: licences, versions, sources, and known faults if their database can be had (builds cargo-deny once: a minute)
	CARGO="$(CARGO)" tools/packaging/deny.sh
