# Every target says what it does behind "##"; make alone lists them.
# A target that ends in a JSON line writes that line alone to stdout and all
# else to stderr, and fails on a bad verdict.

MAKEFLAGS += --no-print-directory
SHELL     := /bin/bash
GO        ?= go

VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# Said, since a machine's GOFLAGS may say otherwise; where git knows nothing, nothing is known.
VCS      := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo -buildvcs=true)
STATIC   := CGO_ENABLED=0 $(GO) build -trimpath $(VCS) -ldflags '$(LDFLAGS)'

# The linter is built from source once and kept under its version.
LINT_VERSION := v2.15.0
TOOLS        := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/walstream/tools
LINT         := $(TOOLS)/golangci-lint-$(LINT_VERSION)
BENCHSTAT_VERSION := v0.0.0-20260908200009-22c9c6c9d4da
BENCHSTAT    := $(TOOLS)/benchstat-$(BENCHSTAT_VERSION)
GOTESTSUM    := $(TOOLS)/gotestsum-v1.13.0
PROMTOOL     := $(or $(shell command -v promtool),$(TOOLS)/promtool)
APT          := apt-get -o APT::Sandbox::User=root

TEST_TIMEOUT := 45m
# Tests side by side in a package: most of them wait for servers.
PARALLEL     := 4
FUZZTIME     ?= 20s
KILLS        ?= 30
DELIVERY     ?= at-least-once
FAULTS       ?= 200
SEEDS        ?= 10000
SEED         ?= 0
RATE         ?= 100,1000
SECONDS      ?= 30
KAFKAS       ?= 3.9.1 4.4.0
# What depends on the broker's release.
BROKER_CASES := TestStreamStopStart|TestC0[1367]|TestC18|TestC21|TestC34P|TestC48|TestC5[0-5]
# 26 MB: 14 of them are pgx, franz-go and the metrics, 4 the formats of the schema registry
MAX_BINARY   := 26000000

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
release: ## static binaries, bills of materials, images and checksums in dist/; VERSION=v1.2.3
	@rm -rf dist && mkdir -p dist
	@for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do \
	  os=$${target%/*}; arch=$${target#*/}; suffix=; [ $$os = windows ] && suffix=.exe; \
	  echo "dist/walstream-$$os-$$arch$$suffix" >&2; \
	  GOOS=$$os GOARCH=$$arch $(STATIC) -o dist/walstream-$$os-$$arch$$suffix ./cmd/walstream || exit 1; \
	done
	@$(GO) run ./internal/release -version '$(VERSION)' $(if $(MODIFIED),-modified) $(if $(AUTHORITIES),-authorities '$(AUTHORITIES)') dist
	@cat dist/SHA256SUMS >&2

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

# Servers are killed and cut off by the hundred: what fails once is shown, and tried once more.
.PHONY: race
race: ## all tests under the race detector
	@$(if $(RACE),,echo "no C compiler here: the tests run without the race detector" >&2)
	@$(MAKE) $(GOTESTSUM) && $(GOTESTSUM) --format pkgname-and-test-fails --rerun-fails=1 --rerun-fails-max-failures=12 --packages ./... \
	  -- $(RACE) -parallel $(PARALLEL) -timeout $(TEST_TIMEOUT)

.PHONY: cases
cases: ## the field cases with their time-outs in full
	@$(GO) test -run 'TestC[0-9]+' -count=1 -timeout $(TEST_TIMEOUT) ./cmd/... ./pkg/...
	@WALSTREAM_CASES=full $(GO) test -count=1 -timeout 2h -v ./internal/cases
	@$(MAKE) migrate-test

# A cluster that was given has one release.
.PHONY: brokers
brokers: ## sink tests and field cases on real brokers of each release; KAFKAS='3.9.1 4.4.0'
	@export WALSTREAM_TEST_KAFKA_BROKERS= WALSTREAM_TEST_REQUIRE_REAL=1; for version in $(KAFKAS); do \
	  echo "== Kafka $$version" >&2; export WALSTREAM_TEST_KAFKA_VERSION=$$version; \
	  $(GO) test -count=1 -timeout $(TEST_TIMEOUT) -run TestKafkaVersion ./internal/testenv || exit 1; \
	  $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./pkg/sink || exit 1; \
	  $(GO) test -count=1 -timeout $(TEST_TIMEOUT) -run '$(BROKER_CASES)' ./internal/cases || exit 1; \
	done

.PHONY: crash
crash: build ## kill -9 under load and broker restarts; KILLS=30 DELIVERY=at-least-once
	@$(GO) run ./bench/crash -kills $(KILLS) -delivery $(DELIVERY)

.PHONY: chaos
chaos: build ## exactly-once under every fault; FAULTS=200 SEED=0 (0: a new one)
	@$(GO) run ./bench/chaos -faults $(FAULTS) -seed $(SEED)

.PHONY: gap
gap: build ## longest_stall_ms: what a read_committed consumer sees of 20 kills at 100 rows/s
	@$(GO) run ./bench/chaos -faults 20 -only kill -rate 100 -big-every 1h -seed $(SEED)

.PHONY: takeover
takeover: build ## how soon a standby instance takes over, after kill -9 and SIGTERM, both deliveries; ROUNDS=20
	@$(GO) run ./bench/takeover -rounds $(or $(ROUNDS),20)

.PHONY: drill
drill: build ## lose the primary under load, then Kafka's topic, then the slot, and recover; the report's windows against the truth
	@$(GO) run ./bench/drill

# SEED=0, a new one for the tools above, is the first one here.
.PHONY: simulate
simulate: ## the core, both deliveries, against servers that do anything; SEEDS=10000 SEED=1
	@$(GO) run ./internal/simulate -seeds $(SEEDS) -seed $(or $(filter-out 0,$(SEED)),1)

.PHONY: simulate-bugs
simulate-bugs: ## plant bugs in a copy: the simulation has to find each; SEEDS=10000 BUG='*'
	@$(GO) run ./internal/simulate -bugs -seeds $(SEEDS) -bug '$(or $(BUG),*)'

.PHONY: registry-test
registry-test: ## the schema registry's client against a real Apicurio: 3 with Java 21, 2.6 with 17
	@WALSTREAM_TEST_REGISTRY=apicurio $(GO) test -count=1 -run Apicurio -v ./pkg/sink/registry

.PHONY: parity
parity: build ## every record against Debezium's outbox event router; explained.yaml has the differences
	@$(GO) run ./bench/parity

.PHONY: parity-live
parity-live: ## what parity takes for Debezium's records against those of a real Connect worker
	@$(GO) run ./bench/parity -live

# franz-go's mutexes stop virtual time without its build tag.
.PHONY: virtual
virtual: ## the whole service in virtual time, both ends faulty; SEEDS=1000 SEED=1
	@$(GO) run ./internal/simulate -virtual -seeds $(if $(filter file,$(origin SEEDS)),1000,$(SEEDS)) -seed $(or $(filter-out 0,$(SEED)),1)

.PHONY: upgrade-test
upgrade-test: ## pg_upgrade from PostgreSQL 17 to 18 under a pipeline, with the slot that is kept
	@WALSTREAM_TEST_UPGRADE=1 $(GO) test -count=1 -timeout $(TEST_TIMEOUT) -v -run TestPgUpgrade ./internal/cases

.PHONY: migrate-test
migrate-test: ## from Debezium to walstream and back under load, with a real Connect worker
	@$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -v ./internal/connect

.PHONY: fuzz
fuzz: ## every fuzz test for FUZZTIME=20s
	@grep -rlE --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$file" | while read -r _ name; do \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	  done || exit 1; \
	done

.PHONY: fuzz-tables
fuzz-tables: build ## outbox tables nobody has thought of, altered while streamed, both deliveries; SECONDS=30 SEED=0
	@$(GO) run ./bench/tables -seconds $(SECONDS) -seed $(SEED)

# Where promtool cannot be had that is said, and fails in CI only.
.PHONY: monitoring-check
monitoring-check: ## alert rules, dashboard and runbooks against a scrape of the real binary
	@$(MAKE) $(PROMTOOL) || { echo "no promtool here (Debian's package prometheus has it): monitoring is NOT checked" >&2; [ -z "$(CI)" ]; exit; }; \
	  set -e; dir=$$(mktemp -d); trap 'rm -rf $$dir' EXIT; \
	  cd deploy/prometheus && $(PROMTOOL) check rules walstream.rules.yml && $(PROMTOOL) test rules walstream.tests.yml && cd ../..; \
	  $(GO) run ./deploy/live $$dir; \
	  $(PROMTOOL) test rules $$dir/alerts.tests.yml; \
	  for scrape in streaming standby; do $(PROMTOOL) check metrics < $$dir/$$scrape.txt; done; \
	  cd deploy/check && WALSTREAM_MONITORING=$$dir $(GO) test -count=1 ./...

.PHONY: manifests-check
manifests-check: ## Kubernetes manifests and chart, decoded strictly into the API's types
	@cd deploy/kubernetes/check && $(GO) vet . && $(GO) test -count=1 .

# Left out is what is about native servers, and what a container cannot do.
.PHONY: docker-test
docker-test: ## the test servers by way of Docker
	@docker version >/dev/null || { echo "no Docker engine answers" >&2; exit 1; }
	@WALSTREAM_TEST_FROM=docker WALSTREAM_TEST_REQUIRE_REAL=1 $(GO) test -count=1 -timeout $(TEST_TIMEOUT) \
	  -skip 'TestFirstOf|TestCacheIsBuiltOnce|TestKafkaSurvivesABroker' ./internal/testenv/...

.PHONY: bench
bench: build ## everybody: drains, latency, rest, 50 minutes; ROUNDS=9 ROWS=300000
	@$(GO) run ./bench/contest full

.PHONY: bench-quick
bench-quick: build ## drain 1 M rows against pg_recvlogical on the same WAL; PER_TX=100 ROWS ROUNDS CONTENDERS=socket
	@$(GO) run ./bench/contest quick

.PHONY: bench-debezium
bench-debezium: build ## the same drain with Debezium on Kafka Connect beside it; PER_TX=1 ROWS=300000 ROUNDS=3
	@CONTENDERS=$(or $(CONTENDERS),debezium) $(GO) run ./bench/contest quick

.PHONY: bench-latency
bench-latency: build ## commit to read_committed consumer in both deliveries; RATE=100,1000 SECONDS=30 CONTENDERS
	@$(GO) run ./bench/contest latency -rates $(RATE) -warm-up 5s -measure $(SECONDS)s

.PHONY: bench-growth
bench-growth: build ## more rows, partitions, topics, rows of a transaction; GROWTH='-growth-rows 100000,1000000 ...'
	@$(GO) run ./bench/contest growth $(GROWTH)

.PHONY: bench-compression
bench-compression: build ## none, lz4, zstd and snappy: rate, CPU, bytes on the broker, memory; ROWS ROUNDS PER_TX BYTES
	@$(GO) run ./bench/contest compression

# Ten runs of a second each, beside those that are kept.
.PHONY: bench-micro
bench-micro: $(BENCHSTAT) ## parse, assemble, map, encode, ledger, core against the kept runs; BASELINE=1 keeps these
	@mkdir -p bench/results/local
	@$(GO) run ./bench/micro -long > bench/results/local/micro.txt
	@$(if $(BASELINE),cp bench/results/local/micro.txt bench/results/micro.txt && $(GO) run ./bench/micro -record)
	@$(BENCHSTAT) $(if $(BASELINE),,$(wildcard bench/results/micro.txt)) bench/results/local/micro.txt

.PHONY: bench-gate
bench-gate: ## micro-benchmarks: no more allocations and bytes than recorded
	@$(GO) run ./bench/micro

.PHONY: bench-snapshot
bench-snapshot: build ## the rows from before the slot, with a writer and kill -9, against COPY; ROWS=5000000 KILLS=20
	@$(GO) run ./bench/snapshot -rows $(or $(ROWS),5000000) -kills $(if $(filter file default undefined,$(origin KILLS)),20,$(KILLS))

##################################################### CI

.PHONY: ci
ci: ## what CI runs
	@for target in lint vet-cross binary race bench-gate virtual-quick monitoring-check manifests-check demo-quick crash-quick chaos-quick fuzz-tables-quick registry-test brokers-quick; do \
	  echo "== make $$target" >&2; $(MAKE) $$target || exit 1; \
	done

.PHONY: binary
binary: build ## the binary is small, static, and free of test servers
	@size=$$(wc -c < bin/walstream); echo "bin/walstream: $$size bytes" >&2; [ $$size -lt $(MAX_BINARY) ]
	@info=$$($(GO) version -m bin/walstream) && grep -q CGO_ENABLED=0 <<< "$$info"
	@deps=$$($(GO) list -deps ./cmd/walstream) && ! grep -E 'kfake|embedded-postgres|dockertest|testenv' <<< "$$deps"

.PHONY: virtual-quick
virtual-quick: ## a short make virtual, and what else needs virtual time
	@$(MAKE) virtual SEEDS=60
	@$(GO) test -tags synctests -count=1 -timeout $(TEST_TIMEOUT) -skip '^TestVirtual$$' ./internal/virtual

.PHONY: brokers-quick
brokers-quick: ## a few field cases on the oldest real broker
	@WALSTREAM_TEST_KAFKA_BROKERS= WALSTREAM_TEST_REQUIRE_REAL=1 WALSTREAM_TEST_KAFKA_VERSION=$(firstword $(KAFKAS)) \
	  $(GO) test -count=1 -timeout $(TEST_TIMEOUT) -run 'TestStreamStopStart|TestC03|TestC53PausedInstance' ./internal/cases

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

.PHONY: fuzz-tables-quick
fuzz-tables-quick: ## two minutes of make fuzz-tables, servers included
	@$(MAKE) fuzz-tables SECONDS=100

# Built aside and moved, so that a build that was cut short is not taken for a tool.
$(LINT):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint $(LINT_VERSION), once" >&2
	@tmp=$$(mktemp -d) && GOBIN=$$tmp $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) >&2 \
	  && mv $$tmp/golangci-lint $@ && rmdir $$tmp

$(BENCHSTAT):
	@mkdir -p $(TOOLS)
	@tmp=$$(mktemp -d) && GOBIN=$$tmp $(GO) install golang.org/x/perf/cmd/benchstat@$(BENCHSTAT_VERSION) >&2 \
	  && mv $$tmp/benchstat $@ && rmdir $$tmp

$(GOTESTSUM):
	@mkdir -p $(TOOLS)
	@tmp=$$(mktemp -d) && GOBIN=$$tmp $(GO) install gotest.tools/gotestsum@v1.13.0 >&2 && mv $$tmp/gotestsum $@ && rmdir $$tmp

# From Debian's package, which need not be installed for it. Root may have to
# fetch the lists first.
$(TOOLS)/promtool:
	@mkdir -p $(TOOLS)
	@tmp=$$(mktemp -d) && chmod 755 $$tmp && trap 'rm -rf $$tmp' EXIT && cd $$tmp \
	  && { $(APT) download -qq prometheus || { $(APT) update -qq && $(APT) download -qq prometheus; }; } >&2 \
	  && dpkg -x prometheus_*.deb x && mv x/usr/bin/promtool $@
