# What there is to do here: `make help`. Go is all that has to be installed; Postgres is found or fetched by the programs
# themselves (internal/pgdev).

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# Where Go's own installer puts it, for shells that do not know.
export PATH := $(PATH):/usr/local/go/bin

# A checkout that belongs to somebody else than who builds it has no readable history, and needs none.
export GOFLAGS := $(strip $(shell PATH="$$PATH:/usr/local/go/bin" go env GOFLAGS 2>/dev/null) -buildvcs=false)

ARGS ?=

# The major version of the private Postgres, if not any that is found: make test PG=18, make demo PG=14.
PG ?=
ifneq ($(PG),)
export PG_MAJOR := $(PG)
endif

# The newest Postgres that the tests are known to pass on; check runs them on it.
PG_NEWEST := 18

.PHONY: help build demo run test test-newest check bench chaos lint fmt generate go check-fmt check-generated check-tidy check-cloudrun vet

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

build: go ## Build the programs: bin/holdfast, bin/api, bin/worker, bin/oneshot.
	@mkdir -p bin
	go build -o bin/ ./cmd/holdfast ./cmd/api ./cmd/worker ./cmd/oneshot

demo: go ## Watch a flash sale on a private Postgres, and its invariants verified.
	@echo "Building bin/holdfast; the first time takes a minute or two." >&2
	@go build -o bin/holdfast ./cmd/holdfast
	@exec bin/holdfast demo $(ARGS)

run: go ## Serve on :8080 with a private Postgres, until interrupted (ARGS="--port 9000 --data DIR").
	@echo "Building bin/holdfast; the first time takes a minute or two." >&2
	@go build -o bin/holdfast ./cmd/holdfast
	@exec bin/holdfast run $(ARGS)

# Without a C compiler that works there is no race detector; the tests are worth running all the same.
test: go ## Run every test, all packages on one private Postgres (PG=18: of that version; 14 to 18).
	@race=-race; \
	if [ "$$(go env CGO_ENABLED)" != 1 ] || \
		! printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | $$(go env CC) -x c -fsyntax-only - 2>/dev/null; then \
		race=; echo "No C compiler (gcc) works here: the tests run without the race detector."; \
	fi; \
	go build -o bin/withpg ./internal/pgdev/cmd/withpg && \
	exec bin/withpg -- go test $$race -shuffle=on ./...

# Whether it can be had is asked first, so that no exit code of the tests is taken for that. With CI in the environment it must
# be; elsewhere the tests run on the version that is there.
test-newest: go # Every test, on the newest Postgres.
	@mkdir -p bin && go build -o bin/withpg ./internal/pgdev/cmd/withpg && code=0 && \
	{ env -u HOLDFAST_TEST_DATABASE_URL -u DATABASE_URL -u PG_BIN PG_MAJOR=$(PG_NEWEST) bin/withpg -- true || code=$$?; } && \
	case $$code in \
	0) exec env -u HOLDFAST_TEST_DATABASE_URL -u DATABASE_URL -u PG_BIN $(MAKE) --no-print-directory test PG=$(PG_NEWEST);; \
	127) echo "$(NOT_TESTED)"; \
		if [ -n "$$CI" ]; then echo "With CI set that is a failure."; exit 1; fi; \
		$(MAKE) --no-print-directory test && echo "$(NOT_TESTED)";; \
	*) exit $$code;; \
	esac

NOT_TESTED = NOT TESTED on Postgres $(PG_NEWEST): it cannot be had here.

check: go check-fmt vet lint check-generated check-tidy check-cloudrun test-newest ## Do what CI does: format, vet, lint, generated files, modules, Cloud Run, tests.

# A quarter of an hour on a machine that does nothing else; ARGS="-suite hot" measures a part and prints it only.
bench: go ## Measure beside what people would write themselves; all of it writes docs/performance.md (ARGS="-suite hot -json").
	@go build -o bin/bench ./bench
	@exec bin/bench -page docs/performance.md -plot docs/performance.svg $(ARGS)

# Five minutes, and one more for the checks; ARGS="-for 60s -seed 7" is a shorter storm, -plan shows what it would break.
chaos: go ## Break a running service on purpose and check every promise (ARGS="-for 60s -seed 7 -logs DIR").
	@go build -o bin/chaos ./chaos
	@exec bin/chaos $(ARGS)

lint: go ## Run golangci-lint; the first time compiles it.
	@go build -C tools -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	bin/golangci-lint run --allow-parallel-runners ./...
	cd cloudrun/check && ../../bin/golangci-lint run --allow-parallel-runners ./...

fmt: go ## Format the code.
	gofmt -w .

# The schema of Terraform's provider takes minutes to compile, so it is made again only if what it is made from has
# changed.
generate: go ## Write the generated files again: docs/openapi.json, cloudrun/check/google.json, the tables in docs/operating.md.
	@mkdir -p bin docs
	go run ./cmd/holdfast openapi > bin/openapi.json
	@mv bin/openapi.json docs/openapi.json
	@go build -C cloudrun/check -o ../../bin/check-cloudrun .
	@bin/check-cloudrun -table
	@bin/check-cloudrun -stale || { \
		echo "Compiling Google's Terraform provider for its schema; the first time takes some minutes." >&2; \
		go run -C cloudrun/check/schema . > bin/google.json && mv bin/google.json cloudrun/check/google.json; }

vet: go
	go vet ./...

check-fmt: go
	@echo gofmt -l .
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "$$out"; echo "Not formatted: run make fmt."; exit 1; }

check-generated: go
	@mkdir -p bin
	go run ./cmd/holdfast openapi > bin/openapi.json
	@diff -u docs/openapi.json bin/openapi.json || { echo "docs/openapi.json is out of date: run make generate."; exit 1; }

check-tidy: go
	go mod tidy -diff

# Needs no cloud, no Terraform and no container engine. The tests also run the image's programs, on a private Postgres.
# -count=1, because the tests read files of the whole repository. Without ./... go test shows the figures that they print.
check-cloudrun: go # What runs on Cloud Run: manifests, Terraform, alerts, dashboards, the image.
	go vet -C cloudrun/check ./...
	go build -C cloudrun/check -o ../../bin/check-cloudrun .
	bin/check-cloudrun
	go test -C cloudrun/check -count=1

go:
	@command -v go >/dev/null 2>&1 || { echo "Go is not on the PATH: install Go 1.26 or newer (https://go.dev/dl/), then run this again." >&2; exit 1; }
