# Every target says what it does behind "##"; make alone lists them.
# A target that ends in a JSON line writes that line alone to stdout and all
# else to stderr, and fails on a bad verdict.

MAKEFLAGS += --no-print-directory
SHELL     := /bin/bash
GO        ?= go

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
STATIC   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'

# The linter is built from source once and kept under its version.
LINT_VERSION := v2.15.0
TOOLS        := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/walstream/tools
LINT         := $(TOOLS)/golangci-lint-$(LINT_VERSION)

TEST_TIMEOUT := 25m
FUZZTIME     ?= 20s
KILLS        ?= 30
DELIVERY     ?= at-least-once
FAULTS       ?= 200
SEEDS        ?= 10000
SEED         ?= 0
RATE         ?= 100,1000
SECONDS      ?= 30
# 25 MB
MAX_BINARY   := 25000000

# The race detector needs a C compiler; without one the tests run without it.
RACE := $(if $(shell command -v gcc || command -v clang),-race)

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##################################################### build

.PHONY: build
build: ## static binary in bin/walstream
	@$(STATIC) -o bin/walstream ./cmd/walstream >&2

.PHONY: release
release: ## static binaries for all platforms in dist/, with checksums
	@rm -rf dist && mkdir -p dist
	@for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
	  os=$${target%/*}; arch=$${target#*/}; suffix=; [ $$os = windows ] && suffix=.exe; \
	  echo "dist/walstream-$$os-$$arch$$suffix" >&2; \
	  GOOS=$$os GOARCH=$$arch $(STATIC) -o dist/walstream-$$os-$$arch$$suffix ./cmd/walstream || exit 1; \
	done
	@cd dist && sha256sum walstream-* > SHA256SUMS

##################################################### try it

# Built and run, not go run: that makes an error of a clean end by Ctrl-C.

.PHONY: demo
demo: ## deposits from a real PostgreSQL into Kafka until Ctrl-C; EVENTS=5000 ends by itself
	@$(GO) build -o bin/bank ./examples/bank >&2
	@bin/bank $(if $(EVENTS),-events $(EVENTS))

.PHONY: up
up: ## PostgreSQL, Kafka and walstream in containers
	@VERSION=$(VERSION) docker compose up --build --detach --wait

.PHONY: down
down: ## stop the containers and remove their data
	@docker compose down --volumes

##################################################### test

.PHONY: test
test: ## vet and all tests; fetches what they need on first use
	@$(GO) vet ./...
	@$(GO) test -timeout $(TEST_TIMEOUT) ./...

.PHONY: check
check: lint vet-cross race ## what has to be green before every push: format, lint, vet, race tests

.PHONY: lint
lint: $(LINT) ## format and lint
	@$(LINT) run ./...

.PHONY: fmt
fmt: $(LINT) ## format the code
	@$(LINT) fmt ./...

.PHONY: vet-cross
vet-cross: ## vet for the platforms nobody tests on
	@GOOS=darwin $(GO) vet ./...
	@GOOS=windows $(GO) vet ./...

.PHONY: race
race: ## all tests under the race detector
	@$(if $(RACE),,echo "no C compiler here: the tests run without the race detector" >&2)
	@$(GO) test $(RACE) -timeout $(TEST_TIMEOUT) ./...

.PHONY: cases
cases: ## the field cases with their time-outs in full
	@$(GO) test -run 'TestC[0-9]+' -count=1 -timeout $(TEST_TIMEOUT) ./cmd/... ./pkg/...
	@WALSTREAM_CASES=full $(GO) test -count=1 -timeout 2h -v ./internal/cases

.PHONY: crash
crash: build ## kill -9 under load and broker restarts; KILLS=30 DELIVERY=at-least-once
	@$(GO) run ./bench/crash -kills $(KILLS) -delivery $(DELIVERY)

.PHONY: chaos
chaos: build ## exactly-once under every fault; FAULTS=200 SEED=0 (0: a new one)
	@$(GO) run ./bench/chaos -faults $(FAULTS) -seed $(SEED)

# SEED=0, a new one for the tools above, is the first one here.
.PHONY: simulate
simulate: ## the core, both deliveries, against servers that do anything; SEEDS=10000 SEED=1
	@$(GO) run ./internal/simulate -seeds $(SEEDS) -seed $(or $(filter-out 0,$(SEED)),1)

.PHONY: simulate-bugs
simulate-bugs: ## plant bugs in a copy: the simulation has to find each; SEEDS=10000 BUG='*'
	@$(GO) run ./internal/simulate -bugs -seeds $(SEEDS) -bug '$(or $(BUG),*)'

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME=20s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$file" | while read -r _ name; do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	  done || exit 1; \
	done

.PHONY: docker-test
docker-test: ## the test servers by way of Docker
	@docker version >/dev/null || { echo "no Docker engine answers" >&2; exit 1; }
	@WALSTREAM_TEST_FROM=docker WALSTREAM_TEST_REQUIRE_REAL=1 $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./internal/testenv/...

.PHONY: bench-quick
bench-quick: build ## drain 1 M rows against pg_recvlogical on the same WAL; DELIVERIES=both
	@$(GO) run ./bench/quick

.PHONY: bench-latency
bench-latency: build ## commit to read_committed consumer in both deliveries; RATE=100,1000 SECONDS=30
	@$(GO) run ./bench/latency -rates $(RATE) -seconds $(SECONDS)

##################################################### CI

.PHONY: ci
ci: ## what CI runs
	@for target in lint vet-cross binary race demo-quick crash-quick chaos-quick; do \
	  echo "== make $$target" >&2; $(MAKE) $$target || exit 1; \
	done

.PHONY: binary
binary: build ## the binary is small, static, and free of test servers
	@size=$$(wc -c < bin/walstream); echo "bin/walstream: $$size bytes" >&2; [ $$size -lt $(MAX_BINARY) ]
	@info=$$($(GO) version -m bin/walstream) && grep -q CGO_ENABLED=0 <<< "$$info"
	@deps=$$($(GO) list -deps ./cmd/walstream) && ! grep -E 'kfake|embedded-postgres|dockertest|testenv' <<< "$$deps"

.PHONY: demo-quick
demo-quick: ## a short make demo
	@$(MAKE) demo EVENTS=5000

.PHONY: crash-quick
crash-quick: ## a short make crash
	@$(MAKE) crash KILLS=4 DELIVERY=at-least-once
	@$(MAKE) crash KILLS=4 DELIVERY=exactly-once

.PHONY: chaos-quick
chaos-quick: build ## a short make chaos
	@$(GO) run ./bench/chaos -faults 12 -longest 2s -big-every 4s

# Built aside and moved, so that a build that was cut short is not taken for a tool.
$(LINT):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint $(LINT_VERSION), once" >&2
	@tmp=$$(mktemp -d) && GOBIN=$$tmp $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) >&2 \
	  && mv $$tmp/golangci-lint $@ && rmdir $$tmp
