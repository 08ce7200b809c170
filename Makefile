# The commands of this project. `make demo` and `make test` work on a fresh Debian 12 with only a Rust toolchain:
# what is missing is installed first, and said.

export CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test bench fmt setup build image

help: ## list the commands
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /	/'

demo: setup ## word count and a Nexmark window job on three processes, one killed on the way, checked
	@deploy/demo.sh

test: export LEVADA_SETUP = test
test: setup ## everything that must hold; ends in one summary line
	@integration-tests/run.sh

bench: setup ## the benchmark programs at small sizes
	@integration-tests/bench.sh

build: setup ## release binaries
	cargo build --release --locked --bins

image: build ## Docker images levada and levada-s3, for deploy/compose.yaml
	@deploy/images.sh "$(CARGO_TARGET_DIR)/release"

fmt: ## format the code
	cargo fmt --all

setup:
	@deploy/setup.sh
