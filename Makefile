# `make help` lists the targets. Only Go must be installed; internal/pgdev finds
# or fetches Postgres.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:

# The folder of Go's installer, for shells whose PATH lacks it.
export PATH := $(PATH):/usr/local/go/bin

# Git refuses to read the history of a checkout that another user owns, and the
# build does not need it.
export GOFLAGS := $(strip $(shell PATH="$$PATH:/usr/local/go/bin" go env GOFLAGS 2>/dev/null) -buildvcs=false)

ARGS ?=

# The major version of the private Postgres (make test PG=18, make demo PG=14).
# Without it, any version that is found.
PG ?=
ifneq ($(PG),)
export PG_MAJOR := $(PG)
endif

# The newest Postgres that is supported; check runs the tests on it.
PG_NEWEST := 18

.PHONY: bin/withpg bin/golangci-lint lint-cloudrun help build demo example run test test-newest check bench profile chaos browser clients check-browser check-pages lint fmt generate go check-fmt check-generated check-tidy check-cloudrun check-prose check-names check-dist dist vet

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

build: go ## Build the programs: bin/holdfast, bin/api, bin/worker, bin/oneshot.
	@mkdir -p bin
	go build -o bin/ ./cmd/holdfast ./cmd/api ./cmd/worker ./cmd/oneshot

demo: go ## Watch a flash sale on a private Postgres, and verify its invariants (ARGS=--stay keeps it open).
	@echo "Building bin/holdfast; the first time takes a minute or two." >&2
	@go build -o bin/holdfast ./cmd/holdfast
	@exec bin/holdfast demo $(ARGS)

example: bin/withpg ## Run an example on a private Postgres: make example NAME=tickets, or courts.
	@bin/withpg -- sh -c 'DATABASE_URL="$$HOLDFAST_TEST_DATABASE_URL" exec go run ./examples/$(or $(NAME),tickets)'

run: go ## Serve on :8080 with a private Postgres whose data is kept, until interrupted (ARGS="--port 9000 --fresh").
	@echo "Building bin/holdfast; the first time takes a minute or two." >&2
	@go build -o bin/holdfast ./cmd/holdfast
	@exec bin/holdfast run $(ARGS)

# The race detector needs a working C compiler. Without one the tests run without
# it. withpg is built like the tests, so that no package is compiled twice. Lint
# includes go vet, so the tests leave it out.
test: bin/withpg ## Run every test, all packages on one private Postgres (PG=18: that version; 14 to 18).
	@[ "$(RACE)" ] || echo "No C compiler (gcc) works here: the tests run without the race detector."
	@exec env -u DATABASE_URL bin/withpg -- sh -c "code=0; \
		go test -C bench $(TESTFLAGS) ./... >bin/test-bench.log 2>&1 & bench=\$$!; \
		trap 'kill \$$bench; exit 130' INT TERM; \
		go test $(TESTFLAGS) ./... || code=\$$?; \
		wait \$$bench || code=\$$?; cat bin/test-bench.log; exit \$$code"

# Many tests wait for a deadline or for another process, so more packages than
# there are processors run at a time. On a busy machine some packages need more
# than go test's ten minutes. -s -w leaves out what only a debugger reads.
TESTFLAGS = $(RACE) -vet=off -shuffle=on -timeout=40m -p 3 -ldflags='-s -w'

RACE = $(shell PATH="$(PATH)"; [ "$$(go env CGO_ENABLED)" = 1 ] && \
	printf '\043include <stdlib.h>\nint main(void) { return 0; }\n' | $$(go env CC) -x c -fsyntax-only - 2>/dev/null && echo -race)

bin/withpg: go
	@mkdir -p bin && go build $(RACE) -o bin/withpg ./internal/pgdev/cmd/withpg

# withpg first checks whether this version is available, so that an exit code of
# the tests is not mistaken for that. If CI is set, it must be available.
# Otherwise the tests run on the installed version.
test-newest: bin/withpg # Run every test on the newest Postgres.
	@code=0; \
	{ env -u HOLDFAST_TEST_DATABASE_URL -u DATABASE_URL -u PG_BIN PG_MAJOR=$(PG_NEWEST) bin/withpg -- true || code=$$?; } && \
	case $$code in \
	0) exec env -u HOLDFAST_TEST_DATABASE_URL -u DATABASE_URL -u PG_BIN $(MAKE) --no-print-directory test PG=$(PG_NEWEST);; \
	127) echo "$(NOT_TESTED)"; \
		if [ -n "$$CI" ]; then echo "This is a failure, because CI is set."; exit 1; fi; \
		$(MAKE) --no-print-directory test && echo "$(NOT_TESTED)";; \
	*) exit $$code;; \
	esac

NOT_TESTED = NOT TESTED on Postgres $(PG_NEWEST): it is not available here.

# The pages and the prose are checked beside the rest: the former wait for a
# browser, and the latter runs on one processor.
check: go ## Do what CI does: format, lint with vet, generated files, modules, Cloud Run, prose, pages, tests.
	@mkdir -p bin; \
	$(MAKE) --no-print-directory check-prose check-pages >bin/check-beside.log 2>&1 & beside=$$!; \
	trap 'kill $$beside; exit 130' INT TERM; code=0; \
	$(MAKE) --no-print-directory check-fmt check-names lint check-generated check-tidy check-dist check-cloudrun || code=$$?; \
	echo "Waiting for the prose and the pages."; \
	wait $$beside || code=$$?; \
	cat bin/check-beside.log; \
	exit $$code
	@$(MAKE) --no-print-directory test-newest

# A quarter of an hour on an idle machine. ARGS="-suite hot" measures a part and
# only prints it.
bench: go ## Measure, compared with simple implementations; a full run writes docs/performance.md (ARGS="-suite hot -json").
	@go build -C bench -o ../bin/bench .
	@exec bin/bench -page docs/performance.md -plot docs/performance.svg $(ARGS)

profile: go ## Profile the API and the worker under the ledger's load, into profile/ (PROFILE=folder, ARGS="-seconds 10").
	@go build -C bench -o ../bin/bench .
	@exec bin/bench -suite ledger -profile $(or $(PROFILE),profile) $(ARGS)

# Five minutes, and one more for the checks. ARGS="-for 60s -seed 7" is a shorter
# run, and -plan prints its faults.
chaos: go ## Inject faults into a running service and check every promise (ARGS="-for 60s -seed 7 -logs DIR").
	@go build -o bin/chaos ./chaos
	@exec bin/chaos $(ARGS)

# Six minutes longer than check-browser.
browser: export SCREENSHOTS := ../docs/images
browser: check-browser ## Drive the dashboard and the storefront in Chromium, and take the screenshots of the docs.
	cd browser && node screenshots.mjs

# The types are generated from docs/openapi.json, which a Go test compares with their
# first line, so check needs no Node.js.
clients: bin/withpg ## Lint the document, generate the TypeScript client, and test it and the Go client; the API is killed 200 times (KILLS=10).
	@command -v npm >/dev/null 2>&1 || { echo "The clients need Node.js 20 or newer with npm (https://nodejs.org/)." >&2; exit 1; }
	@cd clients/document && npm ci --no-audit --no-fund --loglevel=error
	cd clients/document && npm run --silent lint && npm run --silent generate && npm run --silent check
	@cd clients/typescript && npm ci --no-audit --no-fund --loglevel=error
	cd clients/typescript && npm run --silent generate && npm run --silent check && npm run --silent build
	go build -o bin/ ./cmd/holdfast ./cmd/api
	cd clients/typescript && HOLDFAST_KILLS=$(or $(KILLS),200) npm test --silent
	HOLDFAST_KILLS=$(or $(KILLS),200) bin/withpg -- go test -count=1 -v -vet=off -timeout 60m -run 'TestCallersOutliveKills|TestClient|TestCases' ./client ./cmd/holdfast

VERSION ?= $(shell sed -n 's/^  "version": "\(.*\)",$$/\1/p' clients/typescript/package.json)

# Some minutes, most of them for the first build of each platform. The time of the
# files is that of the commit, so two runs give the same bytes.
dist: go ## Build the files of a release into dist/: archives, bills of materials, document, npm package, sums.
	@go build -C tools/dist -o ../../bin/dist .
	@exec bin/dist -version "$(VERSION)" -time "$$(git log -1 --format=%ct)" $(ARGS)

# Without Node.js or Chromium the pages are not tested, and check goes on.
check-pages: go # Drive the pages in Chromium if it can be had.
	@if command -v npm >/dev/null 2>&1 && browser/chromium.sh >/dev/null; then \
		$(MAKE) --no-print-directory check-browser; \
	else \
		echo "NOT TESTED in a browser: Node.js with npm or Chromium is not available here."; \
	fi

check-browser: go # Drive the dashboard and the storefront in Chromium.
	@command -v npm >/dev/null 2>&1 || { echo "The browser tests need Node.js 20.19 or newer with npm (https://nodejs.org/)." >&2; exit 1; }
	@browser/chromium.sh >/dev/null
	@cd browser && npm ci --no-audit --no-fund --loglevel=error
	go build -o bin/holdfast ./cmd/holdfast
	cd browser && npm test --silent

# The compilers, the linters and the tests collect their garbage less often than
# by default, but not beyond this memory. That saves a sixth of the time.
check test lint: export GOGC := 300
check test lint: export GOMEMLIMIT := 4GiB

# Each package is compiled twice at most: as the Dockerfile compiles the
# programs, and as the tests are compiled. Lint reads what it compiled for the
# tests. It needs packages of the same kind for all that it reads.
check-generated check-cloudrun check-browser bin/golangci-lint lint-cloudrun: export CGO_ENABLED := 0
check-generated check-cloudrun check-browser bin/golangci-lint lint-cloudrun: export GOFLAGS := $(GOFLAGS) -trimpath

lint: bin/golangci-lint ## Run golangci-lint with go vet; the first time compiles it.
	GOFLAGS="$(GOFLAGS) $(RACE)" bin/golangci-lint run --allow-parallel-runners ./...
	cd bench && GOFLAGS="$(GOFLAGS) $(RACE)" ../bin/golangci-lint run --allow-parallel-runners ./...
	@$(MAKE) --no-print-directory lint-cloudrun

lint-cloudrun: bin/golangci-lint
	cd cloudrun/check && ../../bin/golangci-lint run --allow-parallel-runners ./...

bin/golangci-lint: go
	@mkdir -p bin && go build -C tools -o ../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

fmt: go ## Format the code.
	gofmt -w .

# The schema of Terraform's provider takes minutes to compile, so it is made again
# only if its sources have changed.
generate: go ## Write the generated files again: docs/openapi.json, client/types.go, cloudrun/check/google.json, the tables in docs/operating.md.
	@mkdir -p bin docs
	go run ./cmd/holdfast openapi > bin/openapi.json
	@mv bin/openapi.json docs/openapi.json
	go run -C tools/clienttypes . <docs/openapi.json >bin/types.txt
	@mv bin/types.txt client/types.go
	@go build -C cloudrun/check -o ../../bin/check-cloudrun .
	@bin/check-cloudrun -table
	@bin/check-cloudrun -stale || { \
		echo "Compiling Google's Terraform provider for its schema; the first time takes some minutes." >&2; \
		go run -C cloudrun/check/schema . > bin/google.json && mv bin/google.json cloudrun/check/google.json; }

# Vale's parsers are C. A planted sentence tests that the rules are in force.
check-prose: go # Check the words of comments, string literals and documents; the rules are in tools/vale.
	@printf 'int main(void) { return 0; }\n' | $$(go env CC) -x c -fsyntax-only - 2>/dev/null || { \
		echo "No C compiler (gcc) works here: the prose is not checked."; exit 0; }; \
	go build -C tools/vale -o ../../bin/vale github.com/errata-ai/vale/v3/cmd/vale && \
	go build -C tools -o ../bin/literals ./literals && rm -rf bin/prose && mkdir -p bin/prose && \
	printf 'Whoever is told.\n' | tee bin/prose/planted.md > bin/prose/planted.sql && \
	printf 'package planted\n\nvar planted = "whoever is told"\n' > bin/prose/planted.go && \
	bin/literals bin/prose bin/prose/planted.go && \
	for planted in bin/prose/planted.md bin/prose/planted.sql bin/prose/bin/prose/planted.go.txt; do \
		if bin/vale $$planted >/dev/null; then \
			echo "The rules of tools/vale found nothing in the planted sentence of $$planted."; exit 1; \
		fi; \
	done; \
	rm -rf bin/prose; \
	find . -path ./bin -prune -o -path ./.git -prune -o -name node_modules -prune -o -name '*.go' -print | xargs bin/literals bin/prose && \
	find . -path ./.git -prune -o -name node_modules -prune -o \
			\( -name '*.go' -o -name '*.md' -o -name '*.sql' -o -path ./docs/openapi.json -o -path './bin/prose/*.txt' \) -print \
		| xargs bin/vale --output=line

check-names: go # Count the names that the packages export to users of the library.
	@mkdir -p bin
	go build -C tools -o ../bin/exported ./exported
	@bin/exported -max 413 .

vet: go
	go vet ./...
	go vet -C bench ./...
	go vet -C tools ./...

check-fmt: go
	@echo gofmt -l .
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "$$out"; echo "Not formatted: run make fmt."; exit 1; }

check-generated: go
	@mkdir -p bin
	go run ./cmd/holdfast openapi > bin/openapi.json
	@diff -u docs/openapi.json bin/openapi.json || { echo "docs/openapi.json is out of date: run make generate."; exit 1; }
	go vet -C tools/clienttypes .
	go test -C tools/clienttypes .
	go run -C tools/clienttypes . <docs/openapi.json >bin/types.txt
	@diff -u client/types.go bin/types.txt || { echo "client/types.go is out of date: run make generate."; exit 1; }

# Not cloudrun/check, which go mod tidy cannot read: its go.mod says why.
check-tidy: go
	go mod tidy -diff
	go -C bench mod tidy -diff
	go -C tools mod tidy -diff
	go -C tools/dist mod tidy -diff
	go -C tools/clienttypes mod tidy -diff

check-dist: go # Test what packs the files of a release.
	go vet -C tools/dist .
	go test -C tools/dist .

# Needs no cloud, no Terraform and no container engine. The tests also run the
# image's programs, on a private Postgres. -count=1, because the tests read files
# of the whole repository. Without ./... go test shows the figures that they
# print.
check-cloudrun: go # Check what runs on Cloud Run: manifests, Terraform, alerts, dashboards, the image.
	go vet -C cloudrun/check ./...
	go build -C cloudrun/check -o ../../bin/check-cloudrun .
	bin/check-cloudrun
	go test -C cloudrun/check -count=1

go:
	@command -v go >/dev/null 2>&1 || { echo "Go is not on the PATH: install Go 1.26 or newer (https://go.dev/dl/), then run this again." >&2; exit 1; }
