# cmake --install, and the package that find_package(libtrain) reads. The package names no folder of this machine:
# LibTorch, MPI and NCCL are found again where it is used.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/libtrain")
install(TARGETS libtrain_core libtrain_data libtrain libtrain_cuda_graph libtrain_models libtrain_resnet
  libtrain_mask_rcnn libtrain_roberta EXPORT libtrainTargets)
install(EXPORT libtrainTargets NAMESPACE libtrain:: DESTINATION "${package_dir}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/libtrain" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.hpp" PATTERN detail EXCLUDE)

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/libtrainConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/libtrainConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/libtrainConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/libtrainConfig.cmake"
  "${PROJECT_BINARY_DIR}/libtrainConfigVersion.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindArrow.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindPCRE2.cmake"
  "${CMAKE_CURRENT_LIST_DIR}/FindSpng.cmake"
  DESTINATION "${package_dir}")
foreach(tool libtrain-checkpoint libtrain-info libtrain-inspect libtrain-pack libtrain-tokenizer)
  if(TARGET ${tool})
    install(TARGETS ${tool})
  endif()
endforeach()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libtrain")
