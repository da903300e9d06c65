# dlb: make, make check, make install. Everything built lies under build/ (or BUILD=...).
#   make SAN=address,undefined   the same in build/san-address,undefined
#   make CC=clang WERROR=1       as CI does
#   make MPI=mpich               the same with MPICH in build/mpich
#   make CUDA=0                  without the plug-in for GPUs (default: 1 if there is nvcc)
#   make check JOBS=1            runs one test file at a time (default: one on each core)
PREFIX  ?= /usr/local
DESTDIR ?=
SAN     ?=
MPI     ?= openmpi
CUDA    ?= $(if $(shell command -v nvcc),1,0)
BUILD   ?= build$(if $(filter-out openmpi,$(MPI)),/$(MPI))$(if $(SAN),/san-$(SAN))
CC      ?= gcc
MPI_PACKAGE := $(if $(filter openmpi,$(MPI)),ompi-c,$(MPI))
MPICC_FLAGS := $(shell pkg-config --cflags $(MPI_PACKAGE) 2>/dev/null)
MPI_LIBS    := $(shell pkg-config --libs $(MPI_PACKAGE) 2>/dev/null)
IMAGE_LIBS  := $(shell pkg-config --libs libjpeg libpng 2>/dev/null || echo -ljpeg -lpng)
# OpenBLAS first: its own LAPACK is then the one under LAPACKE.
BLAS_LIBS   := $(shell pkg-config --libs openblas 2>/dev/null || echo -lopenblas) -llapacke
ONNX_PROTO  ?= lib/model/onnx.proto

OPT     ?= -O2
CFLAGS  ?= -g1
DLB_CFLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wvla -Werror=implicit-function-declaration $(if $(WERROR),-Werror) $(OPT) -fno-math-errno \
	-Ilib -I$(BUILD)/gen $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) $(CFLAGS)
# Where numbers are computed, gcc has to vectorise; the other folders compile a fifth faster, and run as fast, with -O2.
LOOPS = tensor comm op optim data
LOOPS_OPT = $(OPT:-O2=-O3)
$(LOOPS:%=$(BUILD)/lib/%/%.o): DLB_CFLAGS += $(LOOPS_OPT)
# Our own loops. Never -ffast-math, and no contraction: bits matter. Files with loops are compiled once more for
# each level of the instruction set; the back end chooses among them when it opens (lib/tensor/cpu/level.h).
# That clang leaves a loop marked simd as it is (-Wpass-failed) is no fault: marks are leave, not orders.
$(BUILD)/lib/tensor/cpu/%.o: DLB_CFLAGS += -fopenmp-simd -fno-trapping-math -ffp-contract=off -Wno-pass-failed
LEVELS := $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),v3 v4)
LEVEL_C = $(filter-out $(patsubst %,lib/tensor/cpu/%.c,cpu level onednn host constant gather index library select taps scan threads spd kfac),$(wildcard lib/tensor/cpu/*.c))
# Their objects for no level run only on processors without AVX2, so they need not be the fastest.
$(if $(LEVELS),$(LEVEL_C:%.c=$(BUILD)/%.o)): LOOPS_OPT = $(OPT)
# clang takes 10 minutes for these under the fuzzers' sanitizers; unit tests run them under gcc's.
v4_FLAGS = -mprefer-vector-width=512 $(if $(findstring fuzzer,$(SAN)),-fno-sanitize=all)
$(BUILD)/lib/comm/%.o $(BUILD)/lib/exec/%.o: DLB_CFLAGS += $(MPICC_FLAGS)
# Unit tests compile in a third of the time of -O3, and run a tenth longer at most.
$(BUILD)/tests/unit/%.o: DLB_CFLAGS += -O1
$(BUILD)/gen/%.o: DLB_CFLAGS += -Wno-missing-prototypes -Wno-shadow -Wno-unused-parameter
LDLIBS  = -Wl,--as-needed $(MPI_LIBS) -ldnnl $(BLAS_LIBS) -lhwloc $(IMAGE_LIBS) -lprotobuf-c -ljansson -lmd -lz -lgomp -lpthread -lm

# Rules for headers name the object as make does: ccache with a base_dir would name it relative to that, where BUILD is absolute.
DEPENDS = -MMD -MP -MQ $@

# Objects depend on $(BUILD)/flags, which changes when the compiler or its flags do; -Werror changes no object.
FLAGS  := $(CC) $(filter-out -Werror,$(DLB_CFLAGS)) $(MPICC_FLAGS) $(LDFLAGS)

TOOLS   = $(patsubst cmd/%.c,%,$(wildcard cmd/dlb-*.c))
LIB_C   = $(wildcard lib/*/*.c lib/tensor/cpu/*.c lib/exec/sync/*.c)
LIB_O   = $(LIB_C:%.c=$(BUILD)/%.o) $(foreach l,$(LEVELS),$(LEVEL_C:%.c=$(BUILD)/%.$l.o)) $(BUILD)/gen/onnx.pb-c.o $(BUILD)/gen/page.o
UNIT    = $(patsubst tests/unit/%.c,%,$(wildcard tests/unit/*.c))
FUZZ    = $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c))

# What a plug-in and the tools must agree on (lib/tensor/plugin.h).
PLUGIN_ABI := $(shell cat lib/tensor/backend.h lib/tensor/map_list.h lib/tensor/plugin.h lib/tensor/tensor.h | cksum | cut -d' ' -f1)
%/lib/tensor/backends.o %/lib/tensor/cuda/plugin.o: DLB_CFLAGS += -DDLB_PLUGIN_ABI=$(PLUGIN_ABI)u

# The plug-in for GPUs, in lib/dlb beside bin: host code with the parts of the library that it calls, and the kernels as fatbins.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc)))
CUDA_C   = $(wildcard lib/tensor/cuda/*.c) $(patsubst %,lib/tensor/%.c,tensor kernel nest loops state_codec) $(patsubst %,lib/util/%.c,error escape utf8 mem mapped rng)
CUDA_CU  = $(wildcard lib/tensor/cuda/*.cu)
CUDA_DEP = $(wildcard lib/tensor/*.h lib/tensor/cuda/*.h lib/tensor/cuda/*.cuh)
# machine code for sm_80 and sm_90, and PTX for later devices: each takes as long to compile as the others
GENCODE ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
NVCC_FLAGS = -std=c++17 -O3 -Ilib $(GENCODE)
# what `all` builds of tests/cuda-host: nothing without a C++ compiler, which the tools do not need
STAND_IN = $(if $(shell command -v $(CXX)),$(BUILD)/cuda-host/dlb-cuda.so)
PLUGINS  = $(if $(filter 1,$(CUDA)),$(BUILD)/lib/dlb/dlb-cuda.so)

.PHONY: cuda-host-check warnings all tools check install clean compile_commands.json fuzz fuzz-bins fuzz-objects always
.SECONDARY:
all: tools $(UNIT:%=$(BUILD)/tests/%) $(STAND_IN) share/schemas/document.json
tools: $(TOOLS:%=$(BUILD)/bin/%) $(PLUGINS)

$(BUILD)/flags: always
	@mkdir -p $(@D)
	@printf '%s\n' "$(FLAGS)" | cmp -s - $@ || printf '%s\n' "$(FLAGS)" >$@
$(BUILD)/gencode: always
	@mkdir -p $(@D)
	@printf '%s\n' "$(GENCODE)" | cmp -s - $@ || printf '%s\n' "$(GENCODE)" >$@
# The library depends on $(BUILD)/objects, which changes when a source comes or goes: make looks at times alone, and a file that
# was moved here may be older than the library.
$(BUILD)/objects: always
	@mkdir -p $(@D)
	@printf '%s\n' $(LIB_O) | cmp -s - $@ || printf '%s\n' $(LIB_O) >$@

$(BUILD)/bin/%: $(BUILD)/cmd/%.o $(BUILD)/libdlb.a
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(BUILD)/libdlb.a
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(BUILD)/libdlb.a: $(LIB_O) $(BUILD)/objects
	@rm -f $@
	ar rcs $@ $(LIB_O)
$(BUILD)/%.o: %.c $(BUILD)/flags | $(BUILD)/gen/onnx.pb-c.h
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) $(DEPENDS) -c -o $@ $<
define level_rule
$(BUILD)/lib/tensor/cpu/%.$1.o: lib/tensor/cpu/%.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(CC) $$(DLB_CFLAGS) -march=x86-64-$1 $$($1_FLAGS) -DDLB_LEVEL=$1 $$(DEPENDS) -c -o $$@ $$<
endef
$(foreach l,$(LEVELS),$(eval $(call level_rule,$l)))
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/flags
	$(CC) $(DLB_CFLAGS) $(DEPENDS) -c -o $@ $<
$(BUILD)/gen/onnx.pb-c.c $(BUILD)/gen/onnx.pb-c.h &: $(ONNX_PROTO)
	@mkdir -p $(BUILD)/gen
	protoc-c --proto_path=$(dir $(ONNX_PROTO)) --c_out=$(BUILD)/gen $(notdir $(ONNX_PROTO))

$(BUILD)/lib/dlb/dlb-cuda.so: $(CUDA_C:%.c=$(BUILD)/cuda/%.o) $(CUDA_CU:%.cu=$(BUILD)/cuda/%.fatbin.o)
	@mkdir -p $(@D)
	$(CC) -shared $(if $(SAN),-fsanitize=$(SAN),-Wl,--no-undefined) $(LDFLAGS) -o $@ $^ -L$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcudart -lm
$(BUILD)/cuda/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) -fPIC -isystem $(CUDA_HOME)/include $(DEPENDS) -c -o $@ $<
# The bits of updates are those of the cpu back end, which does not fuse multiplication and addition either; parts of a
# loss find out whether a difference of products is exactly 0.
$(BUILD)/cuda/lib/tensor/cuda/update.fatbin $(BUILD)/cuda/lib/tensor/cuda/loss.fatbin: NVCC_FLAGS += -fmad=false
$(BUILD)/cuda/%.fatbin: %.cu $(CUDA_DEP) $(BUILD)/gencode
	@mkdir -p $(@D)
	nvcc $(NVCC_FLAGS) -fatbin -o $@ $<
$(BUILD)/cuda/%.fatbin.o: $(BUILD)/cuda/%.fatbin
	printf '.section .rodata\n.balign 16\n.global dlb_fatbin_%s\ndlb_fatbin_%s: .incbin "%s"\n.section .note.GNU-stack,"",%%progbits\n' \
		$(notdir $*) $(notdir $*) $< | $(CC) -x assembler -c -o $@ -

# The same plug-in over tests/cuda-host, which stands in for CUDA's libraries and a device. Its soname is what makes dlopen
# of libcudnn.so.9 find itself.
CUDA_HOST = $(wildcard tests/cuda-host/*.c)
CUDA_HOST_FLAGS = -fPIC -Itests/cuda-host/include -Itests/cuda-host
CXX      ?= g++
CUDA_HOST_CXX = $(CXX) -std=c++17 -Wall -Wextra $(if $(WERROR),-Werror) -O1 -g -ffp-contract=off -Ilib $(CUDA_HOST_FLAGS) \
	$(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) $(DEPENDS)
$(BUILD)/cuda-host/dlb-cuda.so: $(CUDA_C:%.c=$(BUILD)/cuda-host/%.o) $(CUDA_HOST:%.c=$(BUILD)/cuda-host/%.o) \
		$(CUDA_CU:%.cu=$(BUILD)/cuda-host/%.cu.o) $(BUILD)/cuda-host/tests/cuda-host/emulate.o
	$(CXX) -shared -Wl,-soname,libcudnn.so.9 $(if $(SAN),-fsanitize=$(SAN),-Wl,--no-undefined) $(LDFLAGS) -o $@ $^ $(BLAS_LIBS) -lm
$(BUILD)/cuda-host/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) $(CUDA_HOST_FLAGS) $(DEPENDS) -c -o $@ $<
$(BUILD)/cuda-host/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(CUDA_HOST_CXX) -x c++ -c -o $@ $<
$(BUILD)/cuda-host/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(CUDA_HOST_CXX) -c -o $@ $<

# Whether the stand-in declares what NVIDIA declares: its sources compiled against NVIDIA's headers.
cuda-host-check: ; for f in $(filter-out %/modules.c,$(CUDA_HOST)); do \
	$(CC) $(DLB_CFLAGS) -fsyntax-only -isystem $(CUDA_HOME)/include -Itests/cuda-host $$f || exit; done

# The style and the script of dlb-view -f html, as strings of the library.
PAGE_JS = $(patsubst %,lib/view/page/%.js,base chart canvas timeline learning memory waits rounds graph machine main)
$(BUILD)/gen/page.c: lib/view/page/page.css $(PAGE_JS) Makefile
	@mkdir -p $(@D)
	{ for name in css js; do \
		printf 'const char dlb_page_%s[] = {' $$name; \
		case $$name in css) cat lib/view/page/page.css ;; js) cat $(PAGE_JS) ;; esac | od -An -v -tu1 | sed 's/[0-9][0-9]*/&,/g'; \
		echo '0 };'; \
	done; } >$@

# The schema of whole documents: the envelope with the sections' schemas in it, since validators read no file beside the one
# that they are given. It is kept in the repository, so that it is there without a build.
SECTIONS = graph profile cluster cost balance plan run report
share/schemas/document.json: $(patsubst %,share/schemas/%.json,envelope $(SECTIONS))
	jq -s '.[0] + {"$$defs": (.[1:] | map({(."$$id" | split("/")[-1] | rtrimstr(".json")): .}) | add)}' $^ >$@.new
	mv $@.new $@

# All sources that a C compiler other than gcc may warn of, for a CC with -fsyntax-only: no object comes of it, nothing is linked.
# clang's warnings are its front end's, but for -Wpass-failed, which is off.
warnings: $(LIB_O) $(TOOLS:%=$(BUILD)/cmd/%.o) $(UNIT:%=$(BUILD)/tests/unit/%.o) fuzz-objects

# libFuzzer drivers, clang only: tests/fuzz/NAME.c -> build/fuzz/NAME
fuzz: ; $(MAKE) CC=clang SAN=fuzzer-no-link,address,undefined BUILD=build/fuzz-obj OPT='-O1 -fno-sanitize-recover=all' fuzz-bins
fuzz-bins: $(FUZZ:%=build/fuzz/%)
# only compiled, by scripts/check, so that the fuzzers follow the library
fuzz-objects: $(FUZZ:%=$(BUILD)/tests/fuzz/%.o)
build/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/libdlb.a
	@mkdir -p $(@D)
	$(CC) $(DLB_CFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)

# JOBS: number of test files at a time
JOBS ?= $(shell nproc)
check: all
	BUILD=$(BUILD) tests/run -j $(JOBS)
install: tools share/schemas/document.json
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/dlb $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 755 $(TOOLS:%=$(BUILD)/bin/%) $(DESTDIR)$(PREFIX)/bin
	$(if $(PLUGINS),install -d $(DESTDIR)$(PREFIX)/lib/dlb && install -m 644 $(PLUGINS) $(DESTDIR)$(PREFIX)/lib/dlb)
	cp -R share/. $(DESTDIR)$(PREFIX)/share/dlb
	for s in 1 5 7; do install -m 644 man/*.$$s $(DESTDIR)$(PREFIX)/share/man/man$$s; done
clean: ; rm -rf build
compile_commands.json: ; bear --output build/compile_commands.json -- $(MAKE) -B all
-include $(CUDA_C:%.c=$(BUILD)/cuda/%.d) $(patsubst %,$(BUILD)/cuda-host/%.d,$(basename $(CUDA_C) $(CUDA_HOST)) $(CUDA_CU) \
	tests/cuda-host/emulate)
-include $(LIB_O:.o=.d) $(TOOLS:%=$(BUILD)/cmd/%.d) $(UNIT:%=$(BUILD)/tests/unit/%.d) \
	$(FUZZ:%=$(BUILD)/tests/fuzz/%.d)
