# Reprieve: every target works alone on a clean clone. `make help` lists them.
SHELL := /bin/bash
GO    ?= go
BIN   := bin/reprieve
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/reprieve
	@mkdir -p bin
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/reprieve

.PHONY: demo
demo: build ## the main job on embedded defaults, told step by step (DEMO=once ends by itself; DEMO_DIR=folder, .demo if not said)
	$(BIN) demo $(if $(filter once,$(DEMO)),--once) --dir $(or $(DEMO_DIR),.demo)

.PHONY: test
test: ## every layer of tests; says which ran
	scripts/test.sh all

.PHONY: test-fast
test-fast: ## the inner loop: build, architecture, unit tests without services or the race detector
	scripts/test.sh fast

.PHONY: chaos
chaos: ## kill -9 at random points against a real Kafka, 20 rounds (ROUNDS=n)
	ROUNDS=$(or $(ROUNDS),20) scripts/test.sh chaos

.PHONY: conform
conform: build ## judge the example plugins, and five that are wrong on purpose
	scripts/conform.sh

.PHONY: drill
drill: ## the recovery drill on real Kafka and PostgreSQL; exit 0 only if the proof holds (QUICK=1 SHARE=1.0 BREAK=double-debit|drop-one)
	QUICK='$(QUICK)' SHARE='$(SHARE)' BREAK='$(BREAK)' scripts/drills/run_dlq_end_to_end_recovery_drill.sh

.PHONY: sanitize
sanitize: ## the client of Kafka under the address sanitizer, C and Go, and with checked pointers (needs libasan)
	scripts/sanitize.sh

.PHONY: bench
bench: ## benchmarks with a ratio against a baseline of the same run (BENCH=prefix)
	scripts/bench.sh '$(BENCH)'

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, go.mod tidy
	scripts/lint.sh

.PHONY: clean
clean: ## remove what was built and the demo folder
	rm -rf bin .demo reprieve-demo bench-results.jsonl drill-audit.json
