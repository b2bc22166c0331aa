# The CUPTI half of the profiler. CUPTI itself is opened at run time; only its headers are needed here.
attnscope_add_library(cupti
  SOURCES cupti_api.cpp cupti_records.cpp cupti_decode.cpp cupti_collector.cpp cupti_convert.cpp cupti_source.cpp
  DEPS profiler cuda
  LINK fmt::fmt)
