# cmake [-DLAUNCHER=ccache] -DNVCC= -DSOURCE= -DOUT= -DINCLUDE= -DDEFINES=A=1,B=2 -P compile_cubin.cmake
get_filename_component(folder ${OUT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
string(REPLACE "," ";" DEFINES "${DEFINES}")
list(TRANSFORM DEFINES PREPEND "-D")
# The -arch=sm_90a shorthand fails with nvcc 13.0; this form does not.
execute_process(
  COMMAND ${LAUNCHER} ${NVCC} -std=c++20 -I${INCLUDE} -gencode arch=compute_90a,code=sm_90a -Xptxas -v ${DEFINES}
          -cubin -c ${SOURCE} -o ${OUT}
  RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${text}")
endif()
if(text MATCHES "C75[0-9][0-9]")
  file(REMOVE ${OUT})
  message(FATAL_ERROR "ptxas gave up a warp-group optimisation (lost overlap or setmaxnreg):\n${text}")
endif()
if(NOT text MATCHES " 0 bytes spill stores")
  file(REMOVE ${OUT})
  message(FATAL_ERROR "registers spill to local memory:\n${text}")
endif()
