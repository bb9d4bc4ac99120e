# LibTorch as an imported target, VeilTorch, taken from the Python wheel that the build's interpreter imports.
#
# find_package(Torch) is not used on purpose: the wheel's package file insists on a CUDA toolkit even where only its CPU half is wanted,
# and a build without nvcc must succeed (docs/building.md).

if(NOT VEIL_TORCH_DIR OR NOT EXISTS ${VEIL_TORCH_DIR}/version.py)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import torch,os;print(os.path.dirname(torch.__file__));print(torch.__version__);print(int(torch._C._GLIBCXX_USE_CXX11_ABI))"
    OUTPUT_VARIABLE torch_answer OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE torch_missing ERROR_QUIET)
  if(torch_missing)
    message(FATAL_ERROR "LibTorch 2.11 not found: ${Python3_EXECUTABLE} cannot import torch. `make setup` installs it, or pass -DPython3_EXECUTABLE=... or -DVEIL_TORCH_DIR=...")
  endif()
  string(REPLACE "\n" ";" torch_answer "${torch_answer}")
  list(GET torch_answer 0 torch_dir)
  set(VEIL_TORCH_DIR ${torch_dir} CACHE PATH "Folder of the torch package" FORCE)
endif()

file(READ ${VEIL_TORCH_DIR}/version.py torch_version_file)
string(REGEX MATCH "__version__ = '([0-9.]+)" _ "${torch_version_file}")
set(VEIL_TORCH_VERSION ${CMAKE_MATCH_1})
if(NOT VEIL_TORCH_VERSION VERSION_GREATER_EQUAL 2.11 OR NOT VEIL_TORCH_VERSION VERSION_LESS 2.12)
  message(FATAL_ERROR "LibTorch ${VEIL_TORCH_VERSION} in ${VEIL_TORCH_DIR}: Veil is built against 2.11")
endif()

set(VEIL_TORCH_HAS_CUDA OFF)
if(EXISTS ${VEIL_TORCH_DIR}/lib/libtorch_cuda.so)
  set(VEIL_TORCH_HAS_CUDA ON)
endif()
get_filename_component(VEIL_TORCH_SITE ${VEIL_TORCH_DIR}/.. ABSOLUTE)
file(GLOB VEIL_TORCH_LIB_DIRS LIST_DIRECTORIES true ${VEIL_TORCH_SITE}/nvidia/*/lib)
list(PREPEND VEIL_TORCH_LIB_DIRS ${VEIL_TORCH_DIR}/lib)

add_library(VeilTorch INTERFACE)
target_include_directories(VeilTorch SYSTEM INTERFACE ${VEIL_TORCH_DIR}/include ${VEIL_TORCH_DIR}/include/torch/csrc/api/include)
# at::parallel_for is a plain loop in what is compiled without OpenMP. Its runtime is LibTorch's own: one for both, and none to install.
# The thread sanitizer does not see how libgomp's threads wait for each other.
file(GLOB torch_openmp ${VEIL_TORCH_DIR}/lib/libgomp*.so*)
if(torch_openmp AND NOT VEIL_TSAN)
  list(GET torch_openmp 0 torch_openmp)
  target_link_libraries(VeilTorch INTERFACE ${torch_openmp})
  target_compile_options(VeilTorch INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>)
endif()
# LibTorch ships its own fmt, and its headers come first; base/format.cpp compiles it.
target_link_libraries(VeilTorch INTERFACE ${VEIL_TORCH_DIR}/lib/libtorch_cpu.so ${VEIL_TORCH_DIR}/lib/libc10.so)
# The wheel's libraries find each other by their own run paths; the linker need not follow them.
target_link_options(VeilTorch INTERFACE "LINKER:--unresolved-symbols=ignore-in-shared-libs")
