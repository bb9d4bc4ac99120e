# `cmake --install BUILD --prefix P` gives P/bin/veil, P/share/doc/veil, a man page and completion
# scripts in P/share, and for C++ programs P/include/veil and
# P/lib/libveil.a with their CMake package (find_package(Veil), target Veil::veil). P can be moved. The program looks for
# LibTorch in P/lib, then in P/lib/veil (filled where VEIL_BUNDLE_TORCH=ON), then in the folder of the wheel it was built
# against; the package looks in that folder unless VEIL_TORCH_DIR names another.

set(bundled "$ORIGIN/../lib" "$ORIGIN/../lib/veil")
# A bundle keeps the wheel's own layout, because its libraries find each other by paths relative to themselves.
foreach(folder ${VEIL_TORCH_LIB_DIRS})
  file(RELATIVE_PATH inside ${VEIL_TORCH_SITE} ${folder})
  list(APPEND bundled "$ORIGIN/../lib/veil/${inside}")
endforeach()
set_target_properties(veil PROPERTIES INSTALL_RPATH "${bundled};${VEIL_TORCH_LIB_DIRS}")

if(SKBUILD)
  # A wheel: site-packages/veil/bin/veil finds LibTorch in site-packages/torch (pyproject.toml).
  set(beside "$ORIGIN/../../torch/lib")
  foreach(folder ${VEIL_TORCH_LIB_DIRS})
    file(RELATIVE_PATH inside ${VEIL_TORCH_SITE} ${folder})
    list(APPEND beside "$ORIGIN/../../${inside}")
  endforeach()
  set_target_properties(veil PROPERTIES INSTALL_RPATH "${beside}")
  install(TARGETS veil RUNTIME DESTINATION veil/bin COMPONENT wheel)
  return()
endif()
install(TARGETS veil RUNTIME DESTINATION bin)
# The program prints its own man page and completion scripts, so they match its options.
foreach(page IN ITEMS "man|share/man/man1|veil.1" "completion bash|share/bash-completion/completions|veil"
    "completion zsh|share/zsh/site-functions|_veil" "completion fish|share/fish/vendor_completions.d|veil.fish")
  string(REPLACE "|" ";" parts "${page}")
  list(GET parts 0 words)
  list(GET parts 1 folder)
  list(GET parts 2 name)
  string(REPLACE " " "\" \"" words "${words}")
  set(written ${CMAKE_BINARY_DIR}/generated/${folder}/${name})
  install(CODE "file(MAKE_DIRECTORY \"${CMAKE_BINARY_DIR}/generated/${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:veil>\" \"${words}\" OUTPUT_FILE \"${written}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${written} DESTINATION ${folder})
endforeach()
file(GLOB top_documents ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CITATION.cff ${CMAKE_SOURCE_DIR}/LICENSE)
install(FILES ${top_documents} DESTINATION share/doc/veil)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/ DESTINATION share/doc/veil)
if(EXISTS ${CMAKE_SOURCE_DIR}/presets)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/presets DESTINATION share/veil)
endif()

if(VEIL_BUNDLE_TORCH)
  # Whole folders of the wheel, not only what the linker sees: cuDNN and NVRTC load their parts by name at run time.
  foreach(folder ${VEIL_TORCH_LIB_DIRS})
    file(RELATIVE_PATH inside ${VEIL_TORCH_SITE} ${folder})
    install(DIRECTORY ${folder}/ DESTINATION lib/veil/${inside} FILES_MATCHING PATTERN "*.so*" PATTERN "libtorch_python.so" EXCLUDE)
  endforeach()
endif()

# The library. Everything below src/cli is installed; the command line is not part of the interface.
include(CMakePackageConfigHelpers)
set_target_properties(veil_core PROPERTIES EXPORT_NAME veil OUTPUT_NAME veil)
install(TARGETS veil_core EXPORT VeilTargets ARCHIVE DESTINATION lib)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/src/ DESTINATION include/veil FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
install(EXPORT VeilTargets NAMESPACE Veil:: DESTINATION lib/cmake/Veil)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/VeilConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/VeilConfig.cmake
  INSTALL_DESTINATION lib/cmake/Veil)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/VeilConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/VeilConfig.cmake ${CMAKE_BINARY_DIR}/generated/VeilConfigVersion.cmake
  ${CMAKE_SOURCE_DIR}/cmake/LibTorch.cmake DESTINATION lib/cmake/Veil)
