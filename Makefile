# The targets for contributors and for CI. `make help` lists them. Each target installs missing
# packages, configures and builds; a second call is incremental.
.DEFAULT_GOAL := help
.PHONY: help setup setup-tools setup-clang setup-lint setup-compare setup-go setup-mpi setup-c \
        setup-python setup-others setup-cross setup-docs setup-ycsb build demo test check format \
        format-check tidy asan tsan nightly bench bench-c bench-check bench-compare report \
        report-page report-power report-buffered report-full setup-report bench-python ycsb \
        ycsb-run test-ycsb paper-figures papers papers-built figures guard-builds lin mutants \
        faults fuzz coverage coherence python test-python other-projects wheel ci-python \
        seventh-engine cross docs test-docs setup-packages deb dist test-packages setup-power \
        power-cuts disk-errors setup-world world papers-threads with-tests ci clean

SOURCE_DIRS := src include tools testing bench evaluation tests examples fuzz python
ENGINE ?= phast
CXX_FILES = $(shell find $(SOURCE_DIRS) -name '*.c' -o -name '*.cc' -o -name '*.h' 2>/dev/null)

help:            ## list the targets; those that name ENGINE take ENGINE=level and so on, or phast
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 16

setup:           ## install the Debian packages that the build and the tests need
	@scripts/setup.sh tests

setup-tools:     ## the same for the library, the command line and the demo only
	@scripts/setup.sh tools

setup-clang:     ## the same for the sanitizers and the fuzzers
	@scripts/setup.sh clang

setup-lint:      ## the same for the formatter and clang-tidy
	@scripts/setup.sh lint

setup-compare:   ## the same for the comparison with other libraries, and build/venv-compare
	@scripts/setup.sh compare
	@scripts/venv.sh compare

setup-go:        ## the same for the linearizability checker, which also fetches a Go module
	@scripts/setup.sh go

setup-python:    ## the same for the Python package, and what pip installs into build/venv
	@scripts/setup.sh python
	@scripts/venv.sh

setup-packages:  ## the same for the Debian packages and their test
	@scripts/setup.sh packages

setup-mpi:       ## the same for perdure::mpi, which the next build then includes
	@scripts/setup.sh mpi
	@rm -f build/release/build.ninja

setup-c:         ## the same for the tests of the C library: abidiff, valgrind
	@scripts/setup.sh c
	@rm -f build/release/build.ninja

setup-cross:     ## the same for the cross build for aarch64, and libraries in build/aarch64-root
	@scripts/setup.sh aarch64
	@scripts/aarch64.sh

setup-ycsb:      ## the same for YCSB: Java, Maven and redis
	@scripts/setup.sh ycsb

setup-power:     ## the same for power-cuts and disk-errors: QEMU, and tools that make its disks
	@scripts/setup.sh power

setup-world:     ## the same for world: ext4, xfs, btrfs
	@scripts/setup.sh world

setup-report:    ## the same for the pictures of a report, which matplotlib draws
	@scripts/setup.sh report
	@scripts/venv.sh report

setup-others:    ## the same for other-projects: CPython's tests, and build/venv-others
	@scripts/setup.sh others
	@scripts/venv.sh others

setup-docs:      ## the same for the documentation site, and what pip installs into build/venv-docs
	@scripts/setup.sh docs
	@scripts/venv.sh docs

build: build/release/build.ninja  ## build the library and the command line, build/release/perdure
	cmake --build --preset release --target products

demo: build/release/build.ninja  ## kill loaders, reopen their pools, and show that nothing is lost
	cmake --build --preset release --target perdure_cli
	@scripts/demo.sh

test: build-release  ## run the fast tests
	ctest --preset release

check: format-check tidy test  ## run what a commit needs: format check, clang-tidy, tests

format: | setup-lint  ## format the sources in place
	@clang-format-19 -i $(CXX_FILES)

format-check: | setup-lint  ## fail if a source is not formatted
	@clang-format-19 --dry-run --Werror $(CXX_FILES)

# Leaves out the tests, whose macros would hide the findings. Needs no build. CI runs it over the
# library only.
TIDY_DIRS ?= src|tools|testing|bench/(harness|workloads)
tidy: setup setup-lint  ## run clang-tidy over library, tools, benchmark and testing
	@cmake --preset tidy >/dev/null
	@run-clang-tidy-19 -quiet -p build/tidy '^$(CURDIR)/($(TIDY_DIRS))/.*\.cc$$'

asan: build-asan ## run all fast tests under AddressSanitizer and UndefinedBehaviorSanitizer
	ctest --preset asan

tsan: build-tsan ## run all fast tests under ThreadSanitizer
	ctest --preset tsan

nightly:  ## run what CI runs, figures at length, documents, packages; again: what is left of it
	@scripts/nightly.py --engine $(ENGINE)

figures: guard-builds  ## count what crashes, kills, faults, flips, fuzzers do to ENGINE: 20 minutes
	@scripts/guards.py figures --engine $(ENGINE)

# The programs that scripts/guards.py runs. A guard fails if its program is missing.
guard-builds: build-release setup-go build-fuzz build-coverage

bench: build     ## run one benchmark of 1 M records, in about a minute
	cd build && release/perdure bench --calibrate --durability emulated --records 1M \
	    --workload load,insert,read,read_batch,read_missing,update,scan,delete

bench-c: build-release  ## compare calls of the C library with the same calls of C++
	build/release/tests/c/c_overhead

# Needs an idle machine. The script builds only what it needs.
bench-check: setup  ## compare speed and costs with BASE=commit
	@scripts/bench_check.py $(if $(BASE),--base $(BASE))

power-cuts disk-errors: MACHINE = build/release/testing/perdure-power-guest build/release/perdure
power-cuts: with-tests setup-power  ## cut the power of a virtual machine CUTS times
	cmake --build --preset release --target perdure_power_guest perdure_cli
	@scripts/power_cuts.py $(MACHINE) $(or $(CUTS),200)

disk-errors: with-tests setup-power  ## let the disk of a virtual machine fail RUNS times
	cmake --build --preset release --target perdure_power_guest perdure_cli
	@scripts/disk_errors.py $(MACHINE) $(or $(RUNS),200)

world: with-tests setup-world  ## fill, take away and clone disks under pools, and so on, as root
	cmake --build --preset release --target perdure_cli perdure_world_owner
	@scripts/world.py build/release/perdure build/release/testing/perdure-world-owner

lin: build-release setup-go  ## check recorded runs of ENGINE for linearizability
	@scripts/lin.sh --engine $(ENGINE)

mutants: build-release  ## break what ENGINE relies on, one thing at a time; a test must notice it
	@build/release/perdure-guard mutants --engine $(ENGINE)

faults: build-release  ## count failed calls and flipped bits that ENGINE survives
	@scripts/faults.sh --engine $(ENGINE)

seventh-engine: setup setup-clang  ## add examples/engine to a copy of the tree, and test it there
	@scripts/seventh_engine.py

# The tests of what the library and its engines promise. Those that time themselves, explore or kill
# processes are left out: an emulated core is some 10 times slower.
cross: setup-cross ## build the library for aarch64, and run its tests in an emulator: half an hour
	@[ -f build/aarch64/build.ninja ] || cmake --preset aarch64 >/dev/null
	cmake --build build/aarch64 --target cross_tests
	ctest --test-dir build/aarch64 -L '^cross$$' -j2 --output-on-failure

fuzz: build-fuzz ## fuzz pools of ENGINE, TSV and the command line: two minutes
	@scripts/fuzz.sh figures --engine $(ENGINE)

# The module is built in the tree of the library, so the library is compiled once.
python: build/release/build.ninja setup-python  ## build the Python package in build/release/python
	@grep -q '^PERDURE_PYTHON:BOOL=ON' build/release/CMakeCache.txt || \
	    cmake --preset tools -DPERDURE_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/build/venv/bin/python \
	          -DPERDURE_TESTS=$$(grep -q '^PERDURE_TESTS:BOOL=ON' build/release/CMakeCache.txt && \
	                            echo ON || echo OFF) >/dev/null
	cmake --build --preset release --target perdure_python

test-python: python  ## run the tests of the Python package
	PYTHONPATH=build/release/python build/venv/bin/python -m pytest

other-projects: python setup-others  ## run tests of zarr, langchain, dogpile.cache and CPython
	PYTHONPATH=build/release/python build/venv-others/bin/python -m pytest tests/other_projects

wheel: setup-python  ## make a wheel of the Python package for other machines, in dist/
	@scripts/wheel.sh

deb: setup-packages  ## build the Debian packages, in build/packages
	@packaging/deb.sh

test-packages: deb  ## try the Debian packages in a clean Debian 12: needs root and a mirror of apt
	@packaging/test_packages.py

dist: setup-tools  ## make the source archive of the last commit, in dist/, and build what is in it
	@packaging/dist.sh

bench-python: python  ## compare the Python package with other stores: some minutes
	PYTHONPATH=build/release/python build/venv/bin/python python/bench/compare.py
	cmake --build --preset release --target perdure_cli
	PYTHONPATH=build/release/python build/venv/bin/python python/bench/batches.py

# The jars come from Maven Central.
ycsb: build/release/build.ninja setup-ycsb  ## build what YCSB needs to drive perdure and redis
	cmake --build --preset release --target perdure_shared perdure_cli
	@bench/ycsb/build.sh

ycsb-run: ycsb   ## run YCSB on the engines and on redis, in turns: 8 minutes
	@bench/ycsb/run.py

test-ycsb: ycsb  ## test the bindings of YCSB
	@bench/ycsb/ycsb_test.py

docs: setup-docs setup-report  ## build the documentation site in build/site
	@scripts/docs/build.sh

test-docs: docs  ## check the links of the site, and open its pages in a browser
	@build/venv-docs/bin/python scripts/docs/check_links.py
	@build/venv-docs/bin/python scripts/docs/browse.py

coverage: build-coverage  ## measure the lines and branches of ENGINE that the fast tests reach
	@scripts/coverage.sh --engine $(ENGINE)

coherence: setup ## count the lines that 64 simulated threads take from each other: ten minutes
	@scripts/coherence.py
	@scripts/coherence.py --planted

report: bench-compare setup-report  ## measure, and write tables and pictures: 20 minutes
	@build/venv-report/bin/python scripts/report.py

report-power: bench-compare setup-report  ## measure what a power failure costs: 20 minutes
	@build/venv-report/bin/python scripts/report.py --power

report-buffered: papers-built  ## measure what durability buffered costs beside process: 20 minutes
	@build/release/perdure-buffered

report-page: setup-report  ## make the page of the report's results, build/report/report.html
	@build/venv-report/bin/python scripts/report.py --page

report-full: bench-compare setup-report  ## the same with up to 50 million entries: hours
	@build/venv-report/bin/python scripts/report.py --full

paper-figures: papers-built  ## measure parts of the five papers' evaluations: a long run
	@build/release/perdure-paper-ordered
	@build/release/perdure-paper-growing
	@build/release/perdure-paper-hash
	@build/release/perdure-paper-skiplist
	@build/release/perdure-paper-versions

papers-threads: papers-built  ## the papers' figures by 1 to 16 threads: ten minutes, 16 cores
	@evaluation/by_threads.py

papers: papers-built  ## build and test the evaluations of the papers
	@ctest --test-dir build/release -L '^evaluation$$' -j2 --output-on-failure

papers-built: with-tests
	cmake --build --preset release --target papers

bench-compare: setup-compare build-compare  ## build build/compare/perdure-compare

# Where pip cannot install what the package needs, it is not tested.
ci-python:
	@if scripts/setup.sh python && scripts/venv.sh; then $(MAKE) test-python; else \
	  echo "ci: the Python package is not tested, because pip cannot install what it needs"; fi

# What every change must pass: the format check, clang-tidy over the library, all tests (also those
# of MPI, and all of the C library) with their budgets of processor time, and the tests with label
# `san` under ASan and TSan.
ci: format-check setup-mpi setup-c  ## run what every change must pass
	$(MAKE) tidy TIDY_DIRS=src
	@rm -f build/release/test_times.txt
	$(MAKE) test
	@scripts/budgets.py check release
	$(MAKE) ci-python
	$(MAKE) san-asan
	$(MAKE) san-tsan

clean:           ## remove all build trees
	rm -rf build

# A preset is configured once. ninja runs cmake again if a CMake file or the set of sources changes.
# build/release begins without the tests, which need more packages. It keeps its objects when they
# are added.
build/release/build.ninja: CMakePresets.json | setup-tools
	cmake --preset tools

build/%/build.ninja: CMakePresets.json | setup setup-clang
	cmake --preset $*

.PRECIOUS: build/%/build.ninja
with-tests: build/release/build.ninja setup
	@grep -q '^PERDURE_TESTS:BOOL=ON' build/release/CMakeCache.txt || cmake --preset release

build-release: with-tests
	cmake --build --preset release

build-%: build/%/build.ninja
	cmake --build --preset $*

san-%: build/%/build.ninja
	cmake --build --preset $* --target san_tests
	ctest --preset $* -L '^san$$'
