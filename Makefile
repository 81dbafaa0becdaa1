# make start   set up and run everything, print the address, a key and a curl line
# make demo    IMAGE=photo.jpg OUT=cutout.png: set up, cut one image out, leave nothing running
# make test    [ONLY=folder or file]: set up and run the tests, or some
# make nightly   the tests that a change rarely affects; if all pass, it writes test/lanes/last-green, which you commit (docs/testing.md); half an hour
# make storms [ONLY=file]: the tests that kill processes or live long, some minutes
# make mutants [ONLY=file]: every guard has a mutant that makes the test fail which is named for it; ten minutes
# make browser [SHOTS=dir]: the account area in a real Chromium, some minutes; SHOTS: a picture of every page goes there
# make monitoring [ONLY=dashboards]: every panel of the dashboards against a real Prometheus, and no alert over a new service that is well; three minutes
# make test-traces  a real model's trace in a real Jaeger (its all-in-one, named jaeger, in MATTING_TEST_TOOLS or the PATH); a minute
# make runbook [ONLY=fleet]: the procedures of docs/runbook.md and docs/security.md as they are written, and alerts that fire and are over; some minutes each
# make test-install   docs/install.md under a real systemd (root, systemd-nspawn), and the commands of the pages on it; some minutes
# make apart [ONLY=all]: packages of the control plane taken away, each and then all: what is left is whole; three minutes
# make test-storage   the suites of storage on versitygw and MinIO, as far as they are installed, with waits for silence; two minutes
# make test-chart   the Helm chart: lint, rendering, a real API server (helm, kubectl, etcd, kube-apiserver), as far as they are here; a minute
# make test-kubernetes [ONLY=name]   the chart on a real cluster of this machine alone, as root, with the images of make images; half an hour
# make check   types, lint, generated code, then the tests: the last thing that CI runs, after those above
# make schemathesis [EXAMPLES=100 SEED=1]: requests made of both OpenAPI documents (Schemathesis, which it installs from PyPI); a minute
# make chaos   storms of kills and stops (KILLS=20 of each kind, SEED=1), on clusters and a bucket, and of hostile receivers; an hour
# make test-databases [ONLY=name]: the store, control planes, webhooks and kills on Galera and MySQL Group Replication; some minutes each
# make test-upgrade   from the last release to this version, each process in turn and back, under load; some minutes
# make test-release   the release command in a scratch clone, and a release (MATTING_TEST_RELEASE=release/0.2.0) by way of a registry: pushed, pulled, run, installed; some minutes
# make test-cuda-stubs   ONNX Runtime's real CUDA provider, of the wheel MATTING_TEST_CUDA_WHEEL names, on stand-ins of CUDA's libraries; a minute
# make soak    [ONLY=name]: tests too long for make test, about half an hour in all; prints first how long each takes
# make repeat  FILE=path TIMES=20 BUSY=3 [NAME=part of a test's name]: a test file again and again, beside busy loops
# make fuzz    COUNT=10000 SEED=1: broken and hostile files through a node's decoder; exits 1 on a violation
# make bench   the figures of bench/MEASUREMENTS.md, measured on this machine; PEER=folder of photos: beside another remover
# make bench-card [ONLY=bare,service,interface PROVIDER=cuda THREADS=4]: what this machine's GPU is worth, to size it (docs/gpu.md); half an hour
# make images  [ONLY=control-plane,node TAG=dev BASE=… PLATFORM=linux/arm64 WITHOUT="portal object-storage" MODELS_FETCH=best]: container images by buildah or podman (docs/containers.md); some minutes
# make test-images  [ONLY=name]: those images run, cut pictures out, are built twice and compared; compose.yaml as a whole; some minutes
# make generate, make format   after a change of a .proto file, inference-node/kernels/, deploy/grafana/source/ or a setting; before a commit

SHELL := /bin/sh
NODE := sh bin/node24
INSTALLED := node_modules/.installed
# Node 24 lies in a small package of its own and is installed first: npm leaves out native packages
# that do not name the Node it runs on, so the rest is installed by npm on Node 24.
NODE_INSTALLED := bin/node/node_modules/.installed
# Of the project's packages, which npm links.
MANIFESTS := $(wildcard proto/package.json program/package.json bin/package.json client/package.json test/support/package.json control-plane/package.json control-plane/*/package.json inference-node/package.json inference-node/*/package.json)
# Scripts of the pages: JavaScript as the browser gets it, its types in comments.
PAGE_SCRIPTS := control-plane/portal/assets
# The package for callers, which the service serves.
CLIENT := client/build/client.tgz
KERNELS := inference-node/kernels
KERNELS_INSTALLED := $(KERNELS)/node_modules/.installed
IMAGE ?=
OUT ?= cutout.png
COUNT ?= 10000
EXAMPLES ?= 100
KILLS ?= 20
SEED ?= 1
ONLY ?=
FILE ?=
TIMES ?= 20
BUSY ?= 0
NAME ?=
SHOTS ?=
TAG ?=
IMAGE_PREFIX ?=
BASE ?=
NODE_BASE ?=
PROVIDER ?=
PLATFORM ?=
PULL ?=
WITHOUT ?=
PHOTOS ?=
MINUTES ?=

# The comments above are the help.
.PHONY: help setup start demo test nightly storms mutants apart test-install test-traces test-storage test-databases test-cuda-stubs test-upgrade test-release test-chart test-kubernetes browser monitoring runbook images test-images check types lint generated generate format fuzz schemathesis chaos soak repeat bench bench-card clean
.DEFAULT_GOAL := help
# Each needs the one before, and the last line of `make check` is the tests' count.
.NOTPARALLEL:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(INSTALLED) $(CLIENT)

$(NODE_INSTALLED): bin/node/package.json bin/node/package-lock.json bin/node/.npmrc
	@command -v npm >/dev/null || { echo "matting: needs npm (it comes with Node 18 or later)" >&2; exit 69; }
	@echo "Installing Node 24 ..."
	@cd bin/node && npm ci --loglevel=error
	@mkdir -p $(@D) && touch $@

# Its own Node is among its commands, so that npx runs them on it.
$(INSTALLED): package.json $(MANIFESTS) package-lock.json .npmrc $(NODE_INSTALLED)
	@echo "Installing packages ..."
	@home=$$($(NODE) -p 'path.dirname(process.execPath)') && export PATH="$$home:$$PATH" && \
		{ npm ci --loglevel=error || { echo "If you changed a package.json, run: npm install --package-lock-only" >&2; exit 1; }; } && \
		ln -s "$$home/node" node_modules/.bin/node
	@touch $@

$(CLIENT): client/pack/main.ts package.json $(wildcard client/*.json client/*.md client/src/*.ts client/src/*/*.ts) $(INSTALLED)
	@home=$$($(NODE) -p 'path.dirname(process.execPath)') && PATH="$$home:$$PATH" node client/pack/main.ts

# The compiler of the kernels: to change or check them; running the service does not need it.
$(KERNELS_INSTALLED): $(KERNELS)/package.json $(KERNELS)/package-lock.json $(KERNELS)/.npmrc $(INSTALLED)
	@echo "Installing the compiler of $(KERNELS) ..."
	@home=$$($(NODE) -p 'path.dirname(process.execPath)') && cd $(KERNELS) && PATH="$$home:$$PATH" npm ci --loglevel=error
	@touch $@

start: setup
	@$(NODE) bin/matting.ts up --end-with-parent

# By the environment: make and the shell would read a quote or a dollar in a file's name.
demo: export MATTING_DEMO_IMAGE = $(value IMAGE)
demo: export MATTING_DEMO_OUT = $(value OUT)
demo: setup
	@$(NODE) bin/matting.ts cutout --out="$$MATTING_DEMO_OUT" -- \
		$${MATTING_DEMO_IMAGE:+"$$MATTING_DEMO_IMAGE"}

test: setup
	@$(NODE) test/run-tests.ts $(ONLY)

nightly: setup
	@$(NODE) test/lanes/main.ts nightly

storms: setup
	@$(NODE) test/run-tests.ts --shared --kind=storm $(ONLY)

mutants: setup
	@MATTING_TEST_GUARDS_OF='$(ONLY)' $(NODE) test/run-tests.ts --kind=mutants

apart: setup
	@$(NODE) test/apart/main.ts $(ONLY)

# Every test that takes its store from OBJECT_STORES: by default versitygw, here MinIO, too, and with waits for silence.
test-storage: setup
	@MATTING_TEST_OBJECT_STORES=versitygw,minio $(NODE) test/run-tests.ts $$(grep -rl \
		--include='*.test.ts' --include='*.storage.ts' -wE "OBJECT_STORES|onObjectStores" control-plane test)

test-databases: setup
	@$(NODE) test/databases/main.ts $(ONLY)

test-chart: setup
	@$(NODE) test/run-tests.ts $(wildcard test/kubernetes/*.chart.ts)

test-kubernetes: setup
	@$(NODE) test/kubernetes/main.ts $(ONLY)

test-cuda-stubs: setup
	@$(NODE) test/run-tests.ts $(wildcard test/cuda-stubs/*.stubs.ts)

browser: setup
	@MATTING_TEST_SHOTS="$(SHOTS)" $(NODE) test/run-tests.ts --minutes=10 test/browser $(wildcard test/browser/*.browser.ts)

monitoring: setup
	@$(NODE) test/run-tests.ts --minutes=10 $(or $(ONLY:%=test/monitoring/%.monitoring.ts),$(wildcard test/monitoring/*.monitoring.ts))

images: setup
	@$(NODE) deploy/images/build.ts $(if $(ONLY),--only '$(ONLY)') $(if $(TAG),--tag '$(TAG)') \
		$(if $(IMAGE_PREFIX),--prefix '$(IMAGE_PREFIX)') $(if $(BASE),--base '$(BASE)') \
		$(if $(NODE_BASE),--node-base '$(NODE_BASE)') $(if $(PROVIDER),--provider '$(PROVIDER)') \
		$(if $(PLATFORM),--platform '$(PLATFORM)') $(if $(PULL),--pull '$(PULL)') \
		$(if $(WITHOUT),--without '$(WITHOUT)') $(if $(MODELS_FETCH),--models-fetch '$(MODELS_FETCH)')

test-images: setup
	@$(NODE) test/run-tests.ts $(wildcard test/images/$(or $(ONLY),*).images.ts)

test-traces: setup
	@$(NODE) test/run-tests.ts $(wildcard test/traces/*.traces.ts)

schemathesis: setup
	@$(NODE) test/schemathesis/main.ts --examples=$(EXAMPLES) --seed=$(SEED)

chaos: setup
	@MATTING_CHAOS_KILLS=$(KILLS) MATTING_CHAOS_SEED=$(SEED) $(NODE) test/run-tests.ts --concurrency=1 \
		--minutes=60 $(wildcard test/chaos/*.storm.ts test/chaos/*.chaos.ts)

test-upgrade: setup
	@$(NODE) test/run-tests.ts $(wildcard test/upgrade/*.upgrade.ts)

test-release: setup
	@$(NODE) test/run-tests.ts $(wildcard test/release/*.release.ts)

runbook: setup
	@$(NODE) test/run-tests.ts --concurrency=1 --minutes=30 $(if $(ONLY),$(ONLY:%=test/runbook/%.runbook.ts),$(wildcard test/runbook/*.runbook.ts))

test-install: setup
	@$(NODE) test/run-tests.ts --minutes=30 $(wildcard test/install/*.install.ts)

soak: setup
	@$(NODE) test/soak/main.ts $(ONLY)

repeat: setup
	@$(NODE) test/support/repeat.ts --times=$(TIMES) --busy=$(BUSY) --name='$(NAME)' $(FILE)

check: types lint generated test-chart test

types: setup
	@$(NODE) node_modules/typescript/bin/tsc -p .
	@$(NODE) node_modules/typescript/bin/tsc -p $(PAGE_SCRIPTS)

lint: setup
	@$(NODE) node_modules/@biomejs/biome/bin/biome ci .
	@$(NODE) node_modules/@bufbuild/buf/bin/buf lint

generated: setup $(KERNELS_INSTALLED)
	@$(NODE) test/support/check-generated.ts

generate: setup $(KERNELS_INSTALLED)
	@PATH="$(CURDIR)/node_modules/.bin:$$PATH" $(NODE) node_modules/@bufbuild/buf/bin/buf generate
	@PATH="$(CURDIR)/node_modules/.bin:$$PATH" $(NODE) node_modules/@bufbuild/buf/bin/buf generate --template inference-node/serving/onnx/buf.gen.yaml
	@home=$(CURDIR) && cd $(KERNELS) && sh "$$home/bin/node24" node_modules/assemblyscript/bin/asc.js --config asconfig.json
	@$(NODE) deploy/grafana/source/write.ts
	@$(NODE) docs/source/write.ts

format: setup
	@$(NODE) node_modules/@biomejs/biome/bin/biome check --write .

fuzz: setup
	@$(NODE) inference-node/serving/test/picture/fuzz/main.ts "$(COUNT)" "$(SEED)"

bench: setup
	@$(NODE) bench/run.ts $(if $(PEER),--peer $(PEER))

bench-card: setup
	@$(NODE) bench/card/main.ts $(if $(ONLY),--only '$(ONLY)') $(if $(PROVIDER),--provider '$(PROVIDER)') $(if $(THREADS),--threads '$(THREADS)')

clean:
	rm -rf node_modules bin/node/node_modules $(KERNELS)/node_modules client/build data model-cache
