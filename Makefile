# seqd: one non-recursive Makefile. Adding a .c file to a directory needs no edit here.
#
#   MODE=release|debug|asan|tsan|mutants   build/$(MODE)/ holds everything made
#   V=1                                    print whole commands
.DEFAULT_GOAL := all
MODE ?= release
B := build/$(MODE)
Q := $(if $(V),,@)
MAKEFLAGS += --no-print-directory

# ---- flags ----------------------------------------------------------------------------------
CC ?= cc
CXX ?= c++
# Objects come from ccache where it is installed and may keep them; a compiler that is named is called as it is.
ifndef CCACHE
CCACHE := $(shell d=$$(ccache --get-config cache_dir 2>/dev/null) && mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] && echo ccache)
endif
cached = $(if $(filter default,$(origin $(1))),$(CCACHE)) $($(1))
# A frame is at most 64 KiB in what is delivered: stacks may be small. Larger rooms are on the heap.
FRAME_release := -Werror=frame-larger-than=65536
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wno-unused-parameter \
        -Wno-missing-field-initializers
UNAME_M ?= $(shell uname -m)
# What the processor checks of where calls return to and branches land.
BRANCHES_x86_64  := -fcf-protection
BRANCHES_aarch64 := -mbranch-protection=standard
HARDEN := -fstack-protector-strong -fPIE $(BRANCHES_$(UNAME_M))
# Lines, for traces of calls; variables, which cost a quarter of all compiling, are for MODE=debug.
CFLAGS_release := -O2 -g1 -D_FORTIFY_SOURCE=2
CFLAGS_debug   := -O0 -g3
CFLAGS_asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_tsan    := -O1 -g1 -fsanitize=thread
CFLAGS_mutants := -O2 -g1 -DSEQD_MUTANTS
LDFLAGS_asan   := -fsanitize=address,undefined
LDFLAGS_tsan   := -fsanitize=thread
ifeq ($(origin CFLAGS_$(MODE)),undefined)
$(error MODE=$(MODE): want release, debug, asan, tsan or mutants)
endif
# The version is in api/core/version.h.
REVISION := $(shell git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)
FRAME := $(FRAME_$(MODE))
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -I. -I$(B)/gen $(WARN) $(HARDEN) $(CFLAGS_$(MODE)) $(CFLAGS)
# Where programs look for plugins: beside themselves, a tests/ above, an installed lib/seqd.
LDFLAGS_ALL := -pie -Wl,-z,relro,-z,now -Wl,--build-id=sha1 -Wl,-rpath,'$$ORIGIN:$$ORIGIN/..:$$ORIGIN/../lib/seqd' \
               $(LDFLAGS_$(MODE)) $(LDFLAGS)

# Floating point: no contraction that depends on the compiler's mood (kernels ask for FMA by name),
# no fast-math anywhere.
CFLAGS_ALL += -ffp-contract=off
# Sanitizers make -O3 of the kernels cost minutes of compiling that no test wins back.
CFLAGS_kernels := $(if $(filter asan tsan,$(MODE)),-O1,-O3) -fno-math-errno -fno-trapping-math
COMMA := ,
# Older compilers do not know all of them.
assembles = $(shell echo '__asm__("$(2)");' | $(CC) $(1) -c -x c -o /dev/null - 2>/dev/null && echo '$(1)')
ifeq ($(UNAME_M),x86_64)
ISA_avx2   := -mavx2 -mfma -mf16c
ISA_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mprefer-vector-width=512
ISA_avx512bf16 := $(call assembles,$(ISA_avx512) -mavx512bf16,vdpbf16ps %zmm0$(COMMA)%zmm1$(COMMA)%zmm2)
ISA_amx := $(call assembles,$(ISA_avx512) -mavx512bf16 -mamx-tile -mamx-bf16,tilerelease)
else ifeq ($(UNAME_M),aarch64)
ISA_neon := -march=armv8-a
ISA_neonbf16 := $(call assembles,-march=armv8.2-a+bf16,bfdot v0.4s$(COMMA)v1.8h$(COMMA)v2.8h)
endif

# TLS between ranks, where OpenSSL's headers are: TLS=0 builds without.
ifndef TLS
TLS := $(shell printf '\043include <openssl/ssl.h>\n\043if OPENSSL_VERSION_NUMBER < 0x10101000L\n\043error\n\043endif\n' | \
         $(CC) $(CFLAGS) -xc -E - >/dev/null 2>&1 && echo 1 || echo 0)
endif
ifeq ($(TLS),1)
TLS_LIBS := -lssl -lcrypto
endif

# Patterns of tokenizers, where PCRE2 is: PCRE2=0 builds without.
ifndef PCRE2
PCRE2 := $(shell pkg-config --exists 'libpcre2-8 >= 10.30' 2>/dev/null && echo 1 || echo 0)
endif
ifeq ($(PCRE2),1)
PCRE2_LIBS := $(shell pkg-config --libs libpcre2-8 2>/dev/null || echo -lpcre2-8)
endif
# The order of cores, to which seqw binds ranks, where hwloc is: HWLOC=0 builds without.
ifndef HWLOC
HWLOC := $(shell pkg-config --exists 'hwloc >= 2.0' 2>/dev/null && echo 1 || echo 0)
endif
ifeq ($(HWLOC),1)
HWLOC_LIBS := $(shell pkg-config --libs hwloc)
endif
ENGINE_LIBS = $(TLS_LIBS) $(PCRE2_LIBS)

# ---- sources --------------------------------------------------------------------------------
src = $(sort $(wildcard $(addsuffix /*.c,$(1))))
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
CORE_SRC   := $(call src,api/core)
API_SRC    := $(call src,api)
API_CXX    := $(wildcard api/*.cc)
PLAN_SRC   := $(call src,worker/program worker/gguf worker/family worker/plan)
ENGINE_SRC := $(call src,kernels kernels/cpu worker/comm worker/sp worker/model worker/jinja worker/text worker/hf worker/data worker/infer worker/train worker/ckpt worker/verify)
RANK_SRC   := $(call src,worker/rank)
GANG_SRC   := $(call src,worker/gang)
AGENT_SRC  := $(call src,worker/agent)
DAEMON_SRC := $(call src,daemon $(addprefix daemon/,access http loop mailbox run sched spec state store upload))
CLIENT_SRC := $(call src,client)
# Instruction sets beside portable, best first. Sanitizers get the best one that this machine has: what
# the others compute is the release's to test.
ALL_ISAS := amx avx512bf16 avx512 avx2 neonbf16 neon
CPU_ISAS := $(foreach i,$(ALL_ISAS),$(if $(ISA_$(i)),$(i)))
ifneq ($(filter asan tsan,$(MODE)),)
CPU_HAS := $(shell sed -nE '/^(flags|Features)/{p;q}' /proc/cpuinfo)
FLAG_amx := amx_bf16
FLAG_avx512bf16 := avx512_bf16
FLAG_avx512 := avx512dq
FLAG_avx2 := avx2
FLAG_neonbf16 := bf16
FLAG_neon := asimd
CPU_ISAS := $(firstword $(foreach i,$(CPU_ISAS),$(if $(filter $(FLAG_$(i)),$(CPU_HAS)),$(i))))
endif
ENGINE_SRC := $(filter-out $(foreach i,$(filter-out $(CPU_ISAS),$(ALL_ISAS)),kernels/cpu/%_$(i).c),$(ENGINE_SRC))
CFLAGS_kernels += $(foreach i,$(CPU_ISAS),-DCPU_ISA_$(i))
TEST_DIRS  := core engine device daemon agent client api
tests_of    = $(sort $(wildcard $(foreach d,$(1),$(d)/test_*.c $(d)/check_*.c)))
TEST_SRC   := $(call tests_of,$(addprefix tests/,$(TEST_DIRS)))
STRAY_TESTS := $(filter-out $(TEST_SRC),$(call tests_of,tests tests/*))
ifneq ($(STRAY_TESTS),)
$(error $(STRAY_TESTS): a test lies in the folder of tests/ that says what it links: $(TEST_DIRS))
endif
BENCH_SRC  := $(call src,tests/bench)
FUZZ_SRC   := $(call src,tests/fuzz)
PAPER_SRC  := $(call src,tests/paper)
SIM_SRC    := $(call src,tests/sim)

PROGRAMS := $(addprefix $(B)/,$(if $(DAEMON_SRC),seqd) $(if $(AGENT_SRC),seqw) \
            $(if $(GANG_SRC),seqgang) $(if $(RANK_SRC),seqrank) $(if $(CLIENT_SRC),seqctl))
TEST_NAMES := $(basename $(notdir $(TEST_SRC)))
# What runs on the emulated device: sanitizers do not follow its threads from stack to stack.
ON_DEVICE := $(basename $(notdir $(wildcard tests/device/*.c)))
SIM := $(B)/sim
TESTS   := $(addprefix $(B)/tests/,$(filter-out $(if $(filter asan tsan,$(MODE)),$(ON_DEVICE)),$(TEST_NAMES)))
# Benches of seqd as a cluster's coordinator.
CLUSTER_BENCHES := bench_nodes bench_queue bench_rest
BENCHES := $(patsubst tests/bench/%.c,$(B)/bench/%,$(BENCH_SRC))
FUZZERS := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ_SRC))

LIBCORE := $(B)/libcore.a
LIBAPI := $(B)/libapi.a
LIBPLAN := $(B)/libplan.a
LIBENGINE := $(B)/libengine.a
LIBDAEMON := $(B)/libdaemon.a
LIBAGENT := $(B)/libagent.a
LIBGANG := $(B)/libgang.a
LIBRANK := $(B)/librank.a
LIBCLIENT := $(B)/libclient.a
LIBTEST := $(B)/libtest.a

# All cores, unless -j is given.
JOBS_ALL = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

## all: build the five programs into build/release
all: $(PROGRAMS)

# A fault to inject is asked for by the core's header, and answered by this alone.
$(LIBCORE): $(call obj,$(CORE_SRC) $(if $(filter mutants,$(MODE)),tests/mutants/hook.c))
$(LIBAPI): $(call obj,$(API_SRC)) $(API_CXX:%.cc=$(B)/obj/%.o) $(B)/obj/gen/cluster.pb-c.o
$(LIBPLAN): $(call obj,$(PLAN_SRC))
$(LIBENGINE): $(call obj,$(ENGINE_SRC))
$(LIBDAEMON): $(call obj,$(filter-out daemon/main.c,$(DAEMON_SRC)))
$(LIBAGENT): $(call obj,$(filter-out worker/agent/main.c,$(AGENT_SRC)))
$(LIBGANG): $(call obj,$(filter-out worker/gang/main.c,$(GANG_SRC)))
$(LIBRANK): $(call obj,$(filter-out worker/rank/main.c,$(RANK_SRC)))
$(LIBTEST): $(call obj,$(call src,tests/lib))
$(LIBCLIENT): $(call obj,$(filter-out client/main.c,$(CLIENT_SRC)))

$(B)/lib%.a:
	$(Q)rm -f $@; ar rcs $@ $^

link = @$(if $(V),,echo '  LD  $@'; )mkdir -p $(@D)
# Where the system has gold, it links the hundreds of tests in half the time of the default linker.
LINKER_tests := $(if $(filter default,$(origin CC)),$(if $(shell command -v ld.gold),-fuse-ld=gold))
# A test has lines in the other modes; without them it is less than half as large.
LDFLAGS_tests := $(if $(filter release mutants,$(MODE)),-Wl$(COMMA)--strip-debug) $(LINKER_tests)
# Objects first: what they define is not looked for in a library.
do_link = $(link); $(CC) $(LDFLAGS_ALL) $(if $(filter $(B)/tests/%,$@),$(LDFLAGS_tests)) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(1)

CLIENT_LIBS := -lcurl -ljansson -lyaml -lm
# What api/ is linked with.
RPC_LIBS := -lgrpc -lgpr -lprotobuf-c -lssl -lcrypto -ltomlplusplus -lstdc++
$(B)/seqd: $(B)/obj/daemon/main.o $(LIBDAEMON) $(LIBAPI) $(LIBPLAN) $(LIBCORE)
	$(call do_link,-lmicrohttpd -lgnutls -ljansson -lsqlite3 $(RPC_LIBS) -lpthread -lm)
$(B)/seqw: $(B)/obj/worker/agent/main.o $(LIBAGENT) $(LIBAPI) $(LIBCORE)
	$(call do_link,$(RPC_LIBS) $(HWLOC_LIBS) -lpthread)
$(B)/seqgang: $(B)/obj/worker/gang/main.o $(LIBGANG) $(LIBCORE)
	$(call do_link,)
$(B)/seqrank: $(B)/obj/worker/rank/main.o $(LIBRANK) $(LIBENGINE) $(LIBPLAN) $(LIBCORE)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
$(B)/seqctl: $(B)/obj/client/main.o $(LIBCLIENT) $(LIBCORE)
	$(call do_link,$(CLIENT_LIBS))

# ---- objects --------------------------------------------------------------------------------
# The object list depends on the flags that made it: a change of flags rebuilds.
FLAGS_NOW := $(CC) $(CFLAGS_ALL) $(CFLAGS_kernels) TLS=$(TLS) PCRE2=$(PCRE2) HWLOC=$(HWLOC)
$(B)/flags: FORCE
	@mkdir -p $(@D); echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@
FORCE:

$(B)/obj/kernels/%.o: EXTRA = $(CFLAGS_kernels)
$(B)/obj/tests/%.o: FRAME =
# A test is compiled about as often as it runs: -O2 costs more than it saves. At -O1 the compiler
# warns of values that it knows too little of; the sanitizers' build is at -O1, too, with the warnings.
EXTRA_tests := $(if $(filter -O2,$(CFLAGS_$(MODE))),-O1 -g0 -Wno-maybe-uninitialized -Wno-stringop-overflow)
$(B)/obj/tests/%.o: EXTRA = $(EXTRA_tests)
# Only tests of the engine, and of the core's records, compute for long enough to win anything by -O1.
QUICK_TESTS := daemon agent client api
$(QUICK_TESTS:%=$(B)/obj/tests/%/%.o): EXTRA = $(EXTRA_tests:-O1=-O0 -U_FORTIFY_SOURCE)
$(B)/obj/tests/bench/%.o $(B)/obj/tests/lib/%.o: EXTRA =
define of_isa
$(B)/obj/kernels/cpu/%_$(1).o: EXTRA = $(CFLAGS_kernels) $(ISA_$(1))
endef
$(foreach i,$(CPU_ISAS),$(eval $(call of_isa,$(i))))
$(B)/obj/worker/comm/tls.o: EXTRA = $(if $(TLS_LIBS),-DHAVE_OPENSSL)
$(B)/obj/worker/agent/cores.o: EXTRA = $(if $(HWLOC_LIBS),-DHAVE_HWLOC $(shell pkg-config --cflags hwloc))
$(B)/obj/worker/text/pattern.o $(B)/obj/worker/text/full_match.o: EXTRA = $(if $(PCRE2_LIBS),-DHAVE_PCRE2 $(shell pkg-config --cflags libpcre2-8 2>/dev/null))
$(B)/obj/api/core/version.o: EXTRA = -DSEQD_REVISION='"$(REVISION)"'
$(B)/obj/%.o: %.c $(B)/flags
	@$(if $(V),,echo '  CC  $<'; )mkdir -p $(@D)
	$(Q)$(call cached,CC) $(CFLAGS_ALL) $(FRAME) $(EXTRA) -MMD -MP -c -o $@ $<

# Debian has no TOML library in C.
CXXFLAGS_ALL := -std=c++17 -D_GNU_SOURCE -I. $(filter-out -Wstrict-prototypes -Wmissing-prototypes,$(WARN)) $(HARDEN) \
                $(CFLAGS_$(MODE)) -DTOML_HEADER_ONLY=0 -DTOML_SHARED_LIB=1 $(CFLAGS)
$(B)/obj/api/%.o: api/%.cc $(B)/flags | $(B)/libraries
	@$(if $(V),,echo '  CXX $<'; )mkdir -p $(@D)
	$(Q)$(call cached,CXX) $(CXXFLAGS_ALL) -MMD -MP -c -o $@ $<

# Where no fault is injected, the release's objects serve.
ifeq ($(MODE),mutants)
PRODUCT_SRC := $(CORE_SRC) $(API_SRC) $(PLAN_SRC) $(ENGINE_SRC) $(RANK_SRC) $(GANG_SRC) $(AGENT_SRC) $(DAEMON_SRC) $(CLIENT_SRC)
SOUND_OBJ := $(call obj,$(filter-out $(shell grep -lis mutant $(PRODUCT_SRC)),$(PRODUCT_SRC)))
$(SOUND_OBJ): $(B)/obj/%.o: FORCE | release-objects
	@mkdir -p $(@D); cmp -s build/release/obj/$*.o $@ || cp build/release/obj/$*.o $@
release-objects:
	$(Q)$(MAKE) -s MODE=release all
endif

# What the control plane is built with: asked for once, before the compiler stumbles over a header.
$(B)/libraries: deploy/deps
	@mkdir -p $(@D); CC='$(CC)' deploy/deps --headers && touch $@
$(call obj,$(API_SRC) $(DAEMON_SRC) $(AGENT_SRC) $(CLIENT_SRC)) $(B)/gen/api/cluster.pb-c.c: | $(B)/libraries

# cluster.proto -> C, outside the tree.
$(B)/gen/api/cluster.pb-c.c $(B)/gen/api/cluster.pb-c.h &: api/cluster.proto
	@mkdir -p $(B)/gen
	$(Q)protoc-c --c_out=$(B)/gen api/cluster.proto
$(B)/obj/gen/cluster.pb-c.o: $(B)/gen/api/cluster.pb-c.c $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(call cached,CC) $(CFLAGS_ALL) -w -c -o $@ $<
$(call obj,$(API_SRC)): | $(B)/gen/api/cluster.pb-c.h

# schema.sql, openapi.yaml and page.html are compiled into seqd as byte strings.
embed = @mkdir -p $(@D); { printf 'const char $(2)[] = {'; od -An -v -tx1 $(1) | sed 's/\([0-9a-f][0-9a-f]\)/0x\1,/g'; printf '0};\n'; } > $@
$(B)/gen/schema_sql.h: daemon/store/schema.sql
	$(call embed,$<,schema_sql)
$(B)/gen/openapi_yaml.h: api/openapi.yaml
	$(call embed,$<,openapi_yaml)
# Of the page also what its Content-Security-Policy names: the digests of its style and its script,
# from the end of one tag to the begin of the other.
csp_digest = sha256-$$({ echo; sed -n '/^<$(2)>$$/,/^<\/$(2)>$$/{//!p}' $(1); } | sha256sum | cut -c 1-64 | tr a-f A-F | basenc --base16 -d | base64)
$(B)/gen/page_html.h: daemon/http/page.html
	$(call embed,$<,page_html)
	$(Q){ printf '#define PAGE_STYLE "%s"\n' "$(call csp_digest,$<,style)"; \
	    printf '#define PAGE_SCRIPT "%s"\n' "$(call csp_digest,$<,script)"; \
	    printf '#define PAGE_ETAG "%s"\n' "$$(sha256sum $< | cut -c 1-32)"; } >> $@
# The reference of REST: a page that openapi.yaml becomes, with the page's style.
$(B)/gen/docs.html: daemon/http/docs.awk api/openapi.yaml daemon/http/page.html
	@mkdir -p $(@D)
	$(Q)awk -f $^ >$@.tmp && mv $@.tmp $@
$(B)/gen/docs_html.h: $(B)/gen/docs.html
	$(call embed,$<,docs_html)
	$(Q){ printf '#define DOCS_STYLE "%s"\n' "$(call csp_digest,$<,style)"; \
	    printf '#define DOCS_ETAG "%s"\n' "$$(sha256sum $< | cut -c 1-32)"; } >> $@
TEMPLATES := $(sort $(wildcard client/templates/*.yaml))
$(B)/gen/templates.h: $(TEMPLATES)
	@mkdir -p $(@D); for f in $^; do printf 'static const char template_%s[] = {' "$$(basename $$f .yaml)"; \
	    od -An -v -tx1 $$f | sed 's/\([0-9a-f][0-9a-f]\)/0x\1,/g'; printf '0};\n'; done > $@
$(B)/gen/convert_py.h: client/convert.py
	$(call embed,$<,convert_py)
$(B)/obj/client/init.o: $(B)/gen/templates.h
$(B)/obj/client/convert.o: $(B)/gen/convert_py.h
$(B)/obj/daemon/store/schema.o: $(B)/gen/schema_sql.h
$(B)/obj/daemon/http/health.o: $(B)/gen/openapi_yaml.h
$(B)/obj/daemon/http/page.o: $(B)/gen/page_html.h $(B)/gen/docs_html.h

# ---- devices that are plugins ---------------------------------------------------------------
# CUDA=1: with the device "cuda", for compute capability 8.0 (and PTX for later ones), 9.0a, 10.0.
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_SRC := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_ARCHS := 80 90a 100
NVCCFLAGS = -std=c++17 -O3 -lineinfo -diag-suppress 128 -I. -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti \
             $(CUDA_PTX) $(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a))
CUDA_PTX := -gencode=arch=compute_80,code=compute_80
$(B)/cuda/hopper%.o: override CUDA_ARCHS := 90a
$(B)/cuda/hopper%.o: override CUDA_PTX :=
CUDA_PLUGIN := $(B)/libkernels_cuda.so
EMU_PLUGIN := $(B)/libkernels_emulated.so
# What tests of devices run on, unless they are built for a GPU alone.
EMULATED = $(if $(filter cuda,$(GPU_DEVICE)),,$(EMU_PLUGIN))
ifeq ($(CUDA),1)
ifeq ($(NVCC),)
$(error CUDA=1 needs nvcc, the compiler of the CUDA Toolkit: put it in PATH, or say NVCC=/path/to/nvcc)
endif
all: $(CUDA_PLUGIN)
endif

$(B)/cuda/%.o: kernels/cuda/%.cu
	@$(if $(V),,echo '  NV  $<'; )mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
# What the kernels use of the core.
CUDA_CORE := $(B)/cuda/err.o $(B)/cuda/library.o
$(CUDA_CORE): $(B)/cuda/%.o: api/core/%.c api/core/%.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -I. -O2 -fPIC -fvisibility=hidden -c -o $@ $<
$(CUDA_PLUGIN): $(patsubst kernels/cuda/%.cu,$(B)/cuda/%.o,$(CUDA_SRC)) $(CUDA_CORE)
	@$(if $(V),,echo '  LD  $@')
	$(Q)$(NVCC) -shared -cudart static -o $@ $^

EMU_FLAGS := -std=c++17 -O2 -g1 -Wall -Wno-unused-function -DSEQD_EMU -I. -fPIC -fvisibility=hidden \
             -ffp-contract=off $(filter -fsanitize=%,$(CFLAGS_$(MODE)))
$(B)/emu/%.o: kernels/cuda/%.cu $(B)/flags
	@$(if $(V),,echo '  EMU $<'; )mkdir -p $(@D)
	$(Q)$(call cached,CXX) $(EMU_FLAGS) -x c++ -MMD -MP -c -o $@ $<
$(B)/emu/%.o: kernels/cuda/%.cc $(B)/flags
	@mkdir -p $(@D)
	$(Q)$(call cached,CXX) $(EMU_FLAGS) -MMD -MP -c -o $@ $<
EMU_OBJ := $(patsubst kernels/cuda/%.cc,$(B)/emu/%.o,$(sort $(wildcard kernels/cuda/*.cc)))
$(EMU_PLUGIN): $(patsubst kernels/cuda/%.cu,$(B)/emu/%.o,$(CUDA_SRC)) $(EMU_OBJ) $(CUDA_CORE)
	@$(if $(V),,echo '  LD  $@')
	$(Q)$(CXX) -shared $(LDFLAGS_$(MODE)) -o $@ $^
# The row "amx" with emulated tiles, for tests: its objects are linked before the library's.
EMU_TILES := $(if $(ISA_avx512bf16),$(B)/emu/kernels/cpu/cpu.o $(B)/emu/kernels/cpu/ops_amx.o)
# For tests alone: -O3 would be seconds of compiling for no figure.
$(B)/emu/kernels/cpu/%.o: kernels/cpu/%.c $(B)/flags
	@$(if $(V),,echo '  EMU $<'; )mkdir -p $(@D)
	$(Q)$(call cached,CC) $(CFLAGS_ALL) $(CFLAGS_kernels:-O3=-O2) -DSEQD_EMU -DCPU_ISA_amx $(EXTRA) -MMD -MP -c -o $@ $<
$(B)/emu/kernels/cpu/ops_amx.o: EXTRA = $(ISA_avx512bf16)
$(B)/tests/check_tiles: $(EMU_TILES)
$(B)/obj/tests/engine/check_tiles.o: EXTRA = $(EXTRA_tests) -DTILES_BUILT=$(if $(EMU_TILES),1,0)
$(B)/obj/tests/engine/test_tiles.o: EXTRA = $(EXTRA_tests) $(or $(ISA_amx),$(ISA_avx512))
# A library of NCCL's name, for tests.
$(B)/libnccl_fake.so: tests/nccl/fake.c worker/comm/nccl_api.h
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -I. $(filter-out -Wmissing-prototypes,$(WARN)) -O2 -fPIC -shared -Wl,-soname,libnccl.so.2 -o $@ $< -lpthread
# A test program reads what it declares (tests/kept.sh).
$(TESTS): | $(B)/confine
$(B)/confine: tests/confine.c
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE -O1 $(WARN) -o $@ $<
$(B)/tests/test_device_nccl $(B)/tests/test_library $(B)/tests/test_transport_choice: | $(B)/libnccl_fake.so
$(addprefix $(B)/tests/,$(ON_DEVICE)): | $(EMULATED)
$(B)/tests/check_emulated: | $(B)/tests/check_kernels

# Objects of other architectures are not this build's.
$(B)/cuda/flags: FORCE
	@mkdir -p $(@D); echo '$(NVCC) $(NVCCFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(NVCCFLAGS)' > $@
$(patsubst kernels/cuda/%.cu,$(B)/cuda/%.o,$(CUDA_SRC)): $(B)/cuda/flags

print-nvcc:
	@echo '$(NVCC)'
print-nvccflags:
	@echo '$(NVCCFLAGS)'
# The kernels and their test, with nothing else of the product: for another architecture too.
KERNEL_TEST := $(B)/tests/kernels_alone
$(KERNEL_TEST): $(call obj,$(filter kernels/%,$(ENGINE_SRC)) $(CORE_SRC) tests/lib/test.c tests/engine/check_kernels.c)
	$(call do_link,-lpthread -lm)
## cuda: compile the CUDA kernels for every architecture (needs nvcc, no GPU)
cuda: $(CUDA_PLUGIN)

# ---- tests ----------------------------------------------------------------------------------
in = $(patsubst tests/$(1)/%.c,$(B)/tests/%,$(filter tests/$(1)/%,$(TEST_SRC)))
# A test's folder says what it links. core, engine and device need neither HTTP nor gRPC nor SQL: they
# build on a bare GPU machine too.
TEST_LIBS = $(LIBTEST) $(LIBRANK) $(LIBENGINE) $(LIBPLAN) $(LIBCORE)
$(call in,daemon): $(B)/tests/%: $(B)/obj/tests/daemon/%.o $(B)/obj/tests/daemon/fold.o $(LIBTEST) $(LIBDAEMON) $(LIBAPI) $(LIBPLAN) $(LIBCORE)
	$(call do_link,-Wl$(COMMA)--wrap=job_fold -lmicrohttpd -lgnutls -ljansson -lsqlite3 $(RPC_LIBS) -lpthread -lm)
$(call in,core): $(B)/tests/%: $(B)/obj/tests/core/%.o $(LIBTEST) $(LIBCORE)
	$(call do_link,-lpthread)
$(call in,device): $(B)/tests/%: $(B)/obj/tests/device/%.o $(TEST_LIBS)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
$(call in,engine): $(B)/tests/%: $(B)/obj/tests/engine/%.o $(TEST_LIBS)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
$(call in,api): $(B)/tests/%: $(B)/obj/tests/api/%.o $(LIBTEST) $(LIBAPI) $(LIBCORE)
	$(call do_link,$(RPC_LIBS) -lpthread)
$(call in,agent): $(B)/tests/%: $(B)/obj/tests/agent/%.o $(LIBTEST) $(LIBAGENT) $(LIBGANG) $(LIBAPI) $(LIBCORE) | $(B)/seqw $(B)/seqgang
	$(call do_link,$(RPC_LIBS) $(HWLOC_LIBS) -lpthread)
# What seqw's tests have in the place of the driver's management library.
FAKE_NVML := $(B)/libfake_nvml.so
$(FAKE_NVML): tests/nvml/fake.c $(B)/flags
	$(link); $(CC) $(filter-out -fPIE,$(CFLAGS_ALL)) -fPIC -shared $(LDFLAGS_$(MODE)) -o $@ $<
$(B)/tests/test_agent_life: | $(FAKE_NVML)
$(call in,client): $(B)/tests/%: $(B)/obj/tests/client/%.o $(LIBTEST) $(LIBCLIENT) $(LIBCORE)
	$(call do_link,$(CLIENT_LIBS))
$(B)/bench/%: $(B)/obj/tests/bench/%.o $(TEST_LIBS)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
$(addprefix $(B)/bench/,$(CLUSTER_BENCHES)): $(B)/bench/%: $(B)/obj/tests/bench/%.o $(LIBTEST) $(LIBDAEMON) $(LIBAPI) $(LIBPLAN) $(LIBCORE)
	$(call do_link,-lmicrohttpd -lgnutls -ljansson -lsqlite3 $(RPC_LIBS) -lpthread -lm)
$(B)/paper: $(call obj,$(PAPER_SRC)) $(TEST_LIBS)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
# The control plane in one thread: these objects take the place of gRPC, HTTP, threads and processes.
SIM_WRAPS := pthread_create pthread_join pthread_cond_wait pthread_cond_timedwait pthread_cond_signal \
             pthread_cond_broadcast clock_gettime time _exit waitpid kill pki_find address_connect \
             loop_timer_create loop_timer_destroy job_fold
# seqd and its agents are two programs: what both call alike gets another name in the agent's.
names = nm -g --defined-only $(1) | awk 'NF == 3 { print $$3 }' | sort -u
$(B)/libsim_agent.a: $(LIBAGENT) $(LIBDAEMON)
	$(Q)$(call names,$(LIBAGENT)) > $@.agent; $(call names,$(LIBDAEMON)) > $@.daemon
	$(Q)comm -12 $@.agent $@.daemon | sed 's/.*/& seqw_&/' > $@.both
	$(Q)objcopy --redefine-syms=$@.both $(LIBAGENT) $@
$(SIM): $(call obj,$(SIM_SRC)) $(LIBTEST) $(LIBDAEMON) $(B)/libsim_agent.a $(LIBAPI) $(LIBPLAN) $(LIBCORE)
	$(call do_link,$(addprefix -Wl$(COMMA)--wrap=,$(SIM_WRAPS)) -lgnutls -ljansson -lsqlite3 $(filter-out -lgrpc -lgpr,$(RPC_LIBS)) $(HWLOC_LIBS) -lpthread -lm)
# Tests that start programs.
$(B)/tests/test_rank $(B)/tests/test_life $(B)/tests/test_prepare $(B)/tests/test_model_jobs \
$(B)/tests/test_family_jobs: | $(B)/seqrank
$(B)/tests/test_device_jobs: | $(B)/seqrank $(EMULATED)
# What describe prints is what the agent reads.
$(B)/tests/test_families: $(B)/obj/worker/agent/describe.o
# The account that make paper holds published numbers against.
$(B)/tests/test_published: $(B)/obj/tests/paper/published.o
.PRECIOUS: $(B)/obj/%.o

## check: install what is missing, build, and run the tests that take minutes
check: deps
	$(Q)tests/check.sh
## check-all: everything that needs no GPU: sanitizers, the emulated GPU, injected faults, kill -9
check-all: deps
	$(Q)tests/check.sh all

## check-asan: the unit tests and the end-to-end test under ASan and UBSan
check-asan: deps
	$(Q)$(MAKE) MODE=asan all tests
	$(Q)tests/run.sh asan && BUILD=build/asan tests/scripts/e2e.sh

## check-tsan: the unit tests (ranks as threads) and the end-to-end test under TSan
check-tsan: deps
	$(Q)$(MAKE) MODE=tsan all tests
	$(Q)SEQD_TEST_SMALL=1 tests/run.sh tsan && BUILD=build/tsan tests/scripts/e2e.sh

## mutants: inject every fault there is and print which test catches it
mutants: deps
	$(Q)tests/mutants.sh

## tests: build the test programs only
tests: $(TESTS)

## check-layers: no file includes what the design forbids
check-layers:
	$(Q)tests/check_layers.sh
## check-symbols: no cycle of calls between folders, nor between files of the daemon; no function without a caller
check-symbols: $(PROGRAMS)
	$(Q)tests/check_symbols.sh . $(B)/obj
	$(Q)tests/check_callers.sh . $(B)/obj
## check-names: exported names begin with their file's stem, its folder's name or a prefix of tests/prefixes.txt
check-names: $(PROGRAMS)
	$(Q)tests/check_names.sh . $(B)/obj
## check-headers: every header compiles alone
check-headers: $(B)/gen/api/cluster.pb-c.h
	$(Q)CC='$(CC)' CXX='$(CXX)' CFLAGS='-std=c11 -D_GNU_SOURCE -I. -I$(B)/gen' tests/check_headers.sh

## check-docs: the words, links and commands of the documents (needs the programs)
check-docs:
	$(Q)tests/scripts/words.sh && tests/scripts/links.sh && tests/scripts/docs.sh

## demo: the main job, in minutes: train, kill a rank, resume, score, verify, teach it to answer, ask it
demo: deps
	$(Q)$(MAKE) $(JOBS_ALL) all
	$(Q)deploy/demo.sh

## bench: tables of speed, as ratios to the machine's measured limits; PEERS=1: then beside PyTorch, llama.cpp and gloo
bench: deps
	$(Q)$(MAKE) all $(BENCHES)
	$(Q)tests/bench/run.sh
	$(if $(PEERS),$(Q)tests/bench/peers.py)

## bench-cluster: nodes that come up, the queue, requests to seqd
bench-cluster: $(addprefix $(B)/bench/,$(CLUSTER_BENCHES))
	$(Q)tests/bench/run.sh $(CLUSTER_BENCHES)

bench-build: $(BENCHES)

# Programs that run on the device that SEQD_TEST_DEVICE names.
# test_device_nccl has a library of NCCL's name and the emulated device; NCCL itself: test_device_jobs.
GPU_TESTS := check_kernels $(filter-out check_emulated check_planted test_device_nccl,$(ON_DEVICE))
$(B)/gpu/%: $(B)/obj/tests/gpu/%.o $(TEST_LIBS)
	$(call do_link,$(ENGINE_LIBS) -lpthread -lm)
# Hopper's primitives alone: no other object of the product but the maps.
$(B)/cuda/probe.o: override CUDA_ARCHS := 90a
$(B)/cuda/probe.o: override CUDA_PTX :=
$(B)/cuda/probe.o: tests/gpu/probe.cu $(B)/cuda/flags
	@$(if $(V),,echo '  NV  $<'; )mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(B)/emu/probe.o: tests/gpu/probe.cu $(B)/flags
	@$(if $(V),,echo '  EMU $<'; )mkdir -p $(@D)
	$(Q)$(call cached,CXX) $(EMU_FLAGS) -x c++ -MMD -MP -c -o $@ $<
PROBE_OBJ := $(addprefix $(B)/,$(if $(filter cuda,$(GPU_DEVICE)),cuda/probe.o cuda/hopper.o,emu/probe.o emu/hopper.o) cuda/err.o) \
             $(if $(filter cuda,$(GPU_DEVICE)),,$(EMU_OBJ))
$(B)/gpu/probe: $(PROBE_OBJ)
	@$(if $(V),,echo '  LD  $@'; )mkdir -p $(@D)
	$(Q)$(if $(filter cuda,$(GPU_DEVICE)),$(NVCC) -cudart static -o $@ $^,$(CXX) $(LDFLAGS_$(MODE)) -o $@ $^ -lpthread)
# What gpu-check runs: the engine, and neither HTTP, nor gRPC, nor SQL.
gpu-build: $(addprefix $(B)/tests/,$(GPU_TESTS)) $(addprefix $(B)/gpu/,bench_gpu bench_steps libraries probe) $(B)/seqrank $(B)/seqgang \
           $(if $(filter cuda,$(GPU_DEVICE)),$(CUDA_PLUGIN),$(EMU_PLUGIN))
print-gpu-tests:
	@echo '$(GPU_TESTS)'
## gpu-check: on a machine with a GPU: prove and measure everything, in three calls within 15 minutes (tests/gpu/check.sh)
gpu-check:
	$(Q)GPU_DEVICE='$(GPU_DEVICE)' tests/gpu/check.sh
## gpu-pack: for a machine with an H100 or H200 that is lent for minutes: what gpu-check runs, in build/pack/b.txz
GPU_PACK_FLAGS := GPU_DEVICE=cuda CUDA_ARCHS=90a CUDA_PTX= TLS=0 PCRE2=0
gpu-pack:
	$(Q)$(MAKE) B=build/sm90 $(GPU_PACK_FLAGS) gpu-build
	$(Q)tests/gpu/pack.sh build/sm90 build/pack/b.txz '$(GPU_PACK_FLAGS)' && tests/gpu/pack.sh --check build/pack/b.txz
## gpu-results: append what calls brought back, in the folders FROM="...", to tests/gpu/RESULTS.md
gpu-results:
	$(Q)tests/gpu/results.sh $(FROM)

## paper: the published claims against counted runs, plans and accounts: build/paper/REPORT.md, with plots
paper: deps
	$(Q)deploy/deps --plots || true
	$(Q)$(MAKE) $(B)/paper
	$(Q)tests/paper/run.sh $(B)/paper build/paper

## sim: build the simulator of the control plane, build/release/sim
sim: $(SIM)

## soak: 100,000 faults in the simulator, from seeds of the day; 500 products of axes; 400 honest proofs; 1,048,576 tokens scored on 4 ranks equal 1 rank, memory as planned: half an hour
soak: deps
	$(Q)$(MAKE) $(JOBS_ALL) all $(SIM)
	$(Q)FIRST=$$(date +%Y%m%d)000000 tests/sim.sh 100000
	$(Q)$(MAKE) $(B)/tests/test_axes && SEQD_TEST_PRODUCTS=500 $(B)/tests/test_axes
	$(Q)$(MAKE) $(B)/tests/test_verify_deep && SEQD_VERIFY_SEEDS=100 $(B)/tests/test_verify_deep
	$(Q)tests/scripts/soak.sh

## fuzz: build the fuzzers with clang's libFuzzer and run each for FUZZ_S seconds (default 60)
fuzz: $(B)/gen/api/cluster.pb-c.h
	$(Q)tests/fuzz/run.sh

## deps: install missing Debian packages (nothing is done when nothing is missing)
deps:
	$(Q)deploy/deps

## man: the man pages seqctl.1, seqd.8 and seqw.8, from the help of the programs, into build/release/man
MAN_PAGES := $(B)/man/seqctl.1 $(B)/man/seqd.8 $(B)/man/seqw.8
man: $(MAN_PAGES)
$(MAN_PAGES): $(PROGRAMS) deploy/man.sh
	$(Q)mkdir -p $(@D); deploy/man.sh $(B)/$(basename $(@F)) $(@F) >$@.tmp && mv $@.tmp $@

## install-bin: programs, man pages and completion into DESTDIR/PREFIX, with CUDA=1 the kernels; nothing outside
PREFIX ?= /usr/local
LIBDIR := $(DESTDIR)$(PREFIX)/lib
SHARE := $(DESTDIR)$(PREFIX)/share
install-bin: all man
	install -d $(DESTDIR)$(PREFIX)/bin $(SHARE)/man/man1 $(SHARE)/man/man8 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	install -m 644 $(B)/man/seqctl.1 $(SHARE)/man/man1
	install -m 644 $(B)/man/seqd.8 $(B)/man/seqw.8 $(SHARE)/man/man8
	$(B)/seqctl completion bash >$(SHARE)/bash-completion/completions/seqctl
	$(B)/seqctl completion zsh >$(SHARE)/zsh/site-functions/_seqctl
	$(B)/seqctl completion fish >$(SHARE)/fish/vendor_completions.d/seqctl.fish
	install -m 755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/bin
ifeq ($(CUDA),1)
	install -d $(DESTDIR)$(PREFIX)/lib/seqd
	install -m 755 $(CUDA_PLUGIN) $(DESTDIR)$(PREFIX)/lib/seqd
endif

## install: what install-bin does, systemd's units, users and options, and /srv/seqd
install: install-bin
	install -d $(addprefix $(LIBDIR)/,systemd/system sysusers.d tmpfiles.d) $(DESTDIR)/etc/seqd $(DESTDIR)/srv/seqd
	for u in seqd seqw; do \
	    sed 's#@PREFIX@#$(PREFIX)#' deploy/systemd/$$u.service >$(LIBDIR)/systemd/system/$$u.service && \
	    install -m 644 deploy/systemd/$$u.sysusers $(LIBDIR)/sysusers.d/$$u.conf && \
	    install -m 644 deploy/systemd/$$u.tmpfiles $(LIBDIR)/tmpfiles.d/$$u.conf && \
	    { [ -e $(DESTDIR)/etc/seqd/$$u.toml ] || install -m 644 deploy/systemd/$$u.toml $(DESTDIR)/etc/seqd/$$u.toml; } || exit 1; \
	done

## deb: packages of Debian for coordinator, agent and client in build/deb (needs debhelper)
deb: all
	$(Q)deploy/deb

## format: clang-format, of the version that deploy/deps names, over the tree
format:
	$(Q)tests/format.sh --write
## check-format: no file differs from what `make format` would write
check-format:
	$(Q)tests/format.sh

## clean: remove build/
clean:
	rm -rf build

## help: this list
HELP := demo check check-all | all deps install install-bin deb clean help | man tests check-docs check-asan check-tsan mutants fuzz sim soak \
        check-layers check-symbols check-names check-headers check-format format | bench bench-cluster paper | cuda gpu-check gpu-pack gpu-results
help:
	@sed -n 's/^## //p' $(firstword $(MAKEFILE_LIST)) | awk -F': ' -v order='$(HELP)' ' \
	    { text[$$1] = substr($$0, length($$1) + 3); line[++n] = $$1 } \
	    function row(t) { printf "  make %-14s %s\n", t, text[t]; shown[t] = 1 } \
	    END { k = split(order, word, " "); \
	        for (i = 1; i <= k; i++) if (word[i] == "|") print ""; else if (word[i] in text) row(word[i]); \
	        for (i = 1; i <= n; i++) if (!(line[i] in shown)) row(line[i]) }'

.PHONY: all tests check check-all check-docs check-asan check-tsan check-layers check-symbols check-names check-headers check-format cuda mutants demo bench bench-cluster paper fuzz sim soak \
        gpu-check gpu-pack gpu-results deps man install install-bin deb format clean help
# What rules and scripts ask for.
.PHONY: FORCE release-objects print-nvcc print-nvccflags print-gpu-tests gpu-build bench-build

-include $(shell find $(B)/obj $(B)/emu $(B)/cuda -name '*.d' 2>/dev/null)
