# Kernel images: one source compiled for exactly one configuration to a cubin, embedded into the library.
#
# attnscope_add_cubin(<out-variable> NAME <name> SOURCE <file.cu> [DEPENDS header …] DEFINES A=1 …)
# Compiles for sm_90a and sets <out-variable> to the cubin's path. A register spill or a ptxas message about lost
# warp-group optimisations (C75xx) fails the build.
function(attnscope_add_cubin out)
  cmake_parse_arguments(A "" "NAME;SOURCE" "DEFINES;DEPENDS" ${ARGN})
  set(cubin ${CMAKE_CURRENT_BINARY_DIR}/cubins/${A_NAME}.cubin)
  string(JOIN "," defines ${A_DEFINES})  # a list would be split on its way to the script
  set(launcher "")
  if(ATTNSCOPE_CCACHE)
    set(launcher ${ATTNSCOPE_CCACHE})
  endif()
  add_custom_command(OUTPUT ${cubin}
    COMMAND ${CMAKE_COMMAND} -DLAUNCHER=${launcher} -DNVCC=${CMAKE_CUDA_COMPILER} -DSOURCE=${A_SOURCE} -DOUT=${cubin}
            -DINCLUDE=${PROJECT_SOURCE_DIR}/src -DDEFINES=${defines} -P ${PROJECT_SOURCE_DIR}/cmake/compile_cubin.cmake
    DEPENDS ${A_SOURCE} ${A_DEPENDS} ${PROJECT_SOURCE_DIR}/cmake/compile_cubin.cmake
    COMMENT "Kernel image ${A_NAME}" VERBATIM)
  set(${out} ${cubin} PARENT_SCOPE)
endfunction()

# attnscope_add_fatbin(<out-variable> NAME <name> SOURCE <file.cu> ARCHS 80 90 90-virtual [DEPENDS header …] DEFINES A=1 …)
# One image for several architectures (virtual: PTX, for later ones), of which the driver takes what fits. A register
# spill on any of them fails the build.
function(attnscope_add_fatbin out)
  cmake_parse_arguments(A "" "NAME;SOURCE" "ARCHS;DEFINES;DEPENDS" ${ARGN})
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/cubins/${A_NAME}.fatbin)
  string(JOIN "," defines ${A_DEFINES})
  string(JOIN "," archs ${A_ARCHS})
  set(launcher "")
  if(ATTNSCOPE_CCACHE)
    set(launcher ${ATTNSCOPE_CCACHE})
  endif()
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${CMAKE_COMMAND} -DLAUNCHER=${launcher} -DNVCC=${CMAKE_CUDA_COMPILER} -DSOURCE=${A_SOURCE} -DOUT=${fatbin}
            -DINCLUDE=${PROJECT_SOURCE_DIR}/src -DDEFINES=${defines} -DARCHS=${archs}
            -P ${PROJECT_SOURCE_DIR}/cmake/compile_fatbin.cmake
    DEPENDS ${A_SOURCE} ${A_DEPENDS} ${PROJECT_SOURCE_DIR}/cmake/compile_fatbin.cmake
    COMMENT "Kernel image ${A_NAME}" VERBATIM)
  set(${out} ${fatbin} PARENT_SCOPE)
endfunction()

# attnscope_embed_image(<name> <file>): the bytes of an image as symbols <name> … <name>_end. Appends the file to the
# caller's list `images` and the declarations to its text `symbols`. One object may hold many.
macro(attnscope_embed_image name file)
  list(APPEND images ${file})
  string(APPEND symbols
    "asm(\".pushsection .rodata\\n.balign 64\\n.globl ${name}\\n${name}: .incbin \\\"${file}\\\"\\n\"\n"
    "    \".globl ${name}_end\\n${name}_end:\\n.popsection\\n\");\n"
    "extern \"C\" const std::byte ${name}[];\nextern \"C\" const std::byte ${name}_end[];\n")
endmacro()
