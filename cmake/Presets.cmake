# Writes presets/<command>/<name>.toml into ${CMAKE_BINARY_DIR}/generated/preset_files.cpp, so that the program has them wherever it lies (src/cli/preset_files.h).

file(GLOB preset_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/presets/*/*.toml)
set(VEIL_PRESET_ENTRIES "")
foreach(path ${preset_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  get_filename_component(name ${path} NAME_WE)
  get_filename_component(folder ${path} DIRECTORY)
  get_filename_component(command ${folder} NAME)
  file(READ ${path} text)
  string(APPEND VEIL_PRESET_ENTRIES "      {\"${command}\", \"${name}\", R\"toml(${text})toml\"},\n")
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/src/cli/preset_files.cpp.in ${CMAKE_BINARY_DIR}/generated/preset_files.cpp @ONLY)
