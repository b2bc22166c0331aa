// Names below stand in public traces (PyTorch 1.8 to 2.11; V100 to B200, MI250/300X) unless marked otherwise.
#include "analysis/kernel_name.h"

#include <gtest/gtest.h>

#include <set>

namespace attnscope {
namespace {

struct GemmCase {
  const char* name;
  NumericType input;
  Tristate tensor_cores;
  const char* arch;
  Tile tile;
};

class GemmNames : public testing::TestWithParam<GemmCase> {};

TEST_P(GemmNames, GiveTypeUnitAndTile) {
  const GemmCase& c = GetParam();
  const KernelName k = decode_kernel_name(c.name);
  EXPECT_EQ(k.kind, KernelKind::kGemm) << c.name;
  EXPECT_EQ(numeric_name(k.input), numeric_name(c.input)) << c.name;
  EXPECT_EQ(k.tensor_cores, c.tensor_cores) << c.name;
  EXPECT_EQ(k.arch, c.arch) << c.name;
  EXPECT_EQ(k.tile, c.tile) << c.name << " " << k.tile.m << "x" << k.tile.n << "x" << k.tile.k;
}

INSTANTIATE_TEST_SUITE_P(
    Seen, GemmNames,
    testing::Values(
        GemmCase{"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
                 NumericType::kBF16,
                 Tristate::kYes,
                 "sm_90",
                 {256, 128, 64}},
        GemmCase{"nvjet_tst_64x16_64x16_2x4_2cta_h_bz_bias_TNT",
                 NumericType::kBF16,
                 Tristate::kYes,
                 "",
                 {64, 16, 64}},
        GemmCase{"sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
                 "alignc4_execute_kernel__5x_cublas",
                 NumericType::kF32,
                 Tristate::kNo,
                 "sm_80",
                 {128, 128, 8}},
        GemmCase{
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_"
            "k_off_kernel__5x_cublas",
            NumericType::kBF16,
            Tristate::kYes,
            "sm_90",
            {64, 64, 64}},
        GemmCase{"ampere_sgemm_128x64_tn", NumericType::kF32, Tristate::kNo, "sm_80", {128, 64, 0}},
        GemmCase{"volta_sgemm_32x32_sliced1x4_nt", NumericType::kF32, Tristate::kNo, "sm_70", {32, 32, 0}},
        GemmCase{
            "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(cutlass_80_simt_sgemm_128x32_"
            "8x5_nn_align1::Params)",
            NumericType::kF32,
            Tristate::kNo,
            "sm_80",
            {128, 32, 8}},
        GemmCase{"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>("
                 "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Params)",
                 NumericType::kBF16,
                 Tristate::kYes,
                 "sm_80",
                 {64, 64, 64}},
        GemmCase{"void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8>("
                 "cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x256_32x3_nn_align8::Params)",
                 NumericType::kF16,
                 Tristate::kYes,
                 "sm_80",
                 {128, 256, 32}},
        GemmCase{
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4>(cutlass_80_tensorop_"
            "s1688gemm_128x128_16x4_nn_align4::Params)",
            NumericType::kTF32,
            Tristate::kYes,
            "sm_80",
            {128, 128, 16}},
        GemmCase{
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x32x256_MI16x16x1_SN_LDSB1_AFC1_ISA942_IU1",
            NumericType::kBF16,
            Tristate::kYes,
            "gfx942",
            {32, 32, 256}},
        GemmCase{"Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_GSUAMB_ISA90a_IU1",
                 NumericType::kF32,
                 Tristate::kYes,
                 "gfx90a",
                 {64, 16, 16}},
        GemmCase{
            "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_"
            "transOut_sm100f",
            NumericType::kBF16,
            Tristate::kYes,
            "sm_100",
            {128, 16, 256}},
        // Documented spellings that no trace at hand shows.
        GemmCase{"volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
                 NumericType::kF16,
                 Tristate::kYes,
                 "sm_70",
                 {128, 128, 0}},
        GemmCase{"ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn",
                 NumericType::kBF16,
                 Tristate::kYes,
                 "sm_80",
                 {128, 64, 0}},
        GemmCase{"nvjet_sm90_hsh_128x128_64x6_1x2_h_bz_TNT",
                 NumericType::kF16,
                 Tristate::kYes,
                 "sm_90",
                 {128, 128, 64}}));

TEST(KernelName, MatrixVectorProductsNeedNoTensorCores) {
  const KernelName k = decode_kernel_name(
      "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float, "
      "false, true, true, false, 6, false, cublasGemvParamsEx<int> >(cublasGemvParamsEx<int>)");
  EXPECT_EQ(k.kind, KernelKind::kGemm);
  EXPECT_TRUE(k.is_gemv);
  EXPECT_EQ(k.input, NumericType::kF16);
}

struct AttentionCase {
  const char* name;
  AttentionImpl implementation;
  AttentionPass pass;
  AttentionRole role;
  NumericType input;
};

class AttentionNames : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionNames, GiveImplementationPassAndRole) {
  const AttentionCase& c = GetParam();
  const KernelName k = decode_kernel_name(c.name);
  EXPECT_EQ(k.kind, KernelKind::kAttention) << c.name;
  EXPECT_EQ(implementation_name(k.implementation), implementation_name(c.implementation)) << c.name;
  EXPECT_EQ(k.pass, c.pass) << c.name;
  EXPECT_EQ(k.role, c.role) << c.name;
  EXPECT_EQ(numeric_name(k.input), numeric_name(c.input)) << c.name;
}

constexpr auto kFwd = AttentionPass::kForward;
constexpr auto kBwd = AttentionPass::kBackward;
constexpr auto kMain = AttentionRole::kMain;

INSTANTIATE_TEST_SUITE_P(
    Seen, AttentionNames,
    testing::Values(
        AttentionCase{
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::"
            "bfloat16_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
            AttentionImpl::kEfficient, kFwd, kMain, NumericType::kBF16},
        AttentionCase{
            "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, "
            "4, false, false, cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 128, 4, "
            "cutlass::bfloat16_t> >, false, true>(pytorch_flash::Flash_fwd_params)",
            AttentionImpl::kFlash2, kFwd, kMain, NumericType::kBF16},
        AttentionCase{"void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, "
                      "cutlass::half_t, Flash_kernel_traits<128, 64, 128, 4, cutlass::half_t> >, false>("
                      "Flash_fwd_params)",
                      AttentionImpl::kFlash2, kFwd, AttentionRole::kSplit, NumericType::kF16},
        AttentionCase{"void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, "
                      "false, cutlass::half_t> >, 4, 1, true>(Flash_fwd_params)",
                      AttentionImpl::kFlash2, kFwd, AttentionRole::kCombine, NumericType::kF16},
        // flash in a cuDNN name is cuDNN, and its f16 names a size, not a format.
        AttentionCase{"cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_"
                      "cga1x1x1_kernel0_0",
                      AttentionImpl::kCudnn, kFwd, kMain, NumericType::kUnknown},
        AttentionCase{"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_"
                      "cga1x1x1_kernel0_0",
                      AttentionImpl::kCudnn, kBwd, kMain, NumericType::kUnknown},
        AttentionCase{"void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*, void const*, "
                      "void*, void*, unsigned int)",
                      AttentionImpl::kCudnn, kBwd, AttentionRole::kPrepare, NumericType::kUnknown},
        AttentionCase{"triton_tem_fused_flex_attention_0", AttentionImpl::kFlex, kFwd, kMain,
                      NumericType::kUnknown},
        AttentionCase{"fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
                      AttentionImpl::kTrtLlm, kFwd, kMain, NumericType::kF8},
        AttentionCase{"kernel_unified_attention_2d", AttentionImpl::kVllmPaged, kFwd, kMain,
                      NumericType::kUnknown},
        AttentionCase{"reduce_segments", AttentionImpl::kVllmPaged, kFwd, AttentionRole::kCombine,
                      NumericType::kUnknown},
        AttentionCase{"attn_fwd", AttentionImpl::kAotriton, kFwd, kMain, NumericType::kUnknown},
        AttentionCase{"attn_fwd.kd", AttentionImpl::kAotriton, kFwd, kMain, NumericType::kUnknown}));

INSTANTIATE_TEST_SUITE_P(
    Documented, AttentionNames,
    testing::Values(
        AttentionCase{"void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::"
                      "CollectiveMainloopFwdSm90<2, cutlass::bfloat16_t>>>>(flash::Params)",
                      AttentionImpl::kFlash3, kFwd, kMain, NumericType::kBF16},
        AttentionCase{
            "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at",
            AttentionImpl::kFlash4, kFwd, kMain, NumericType::kUnknown},
        AttentionCase{"void flashinfer::BatchPrefillWithPagedKVCacheKernel<float>(flashinfer::Params)",
                      AttentionImpl::kFlashInfer, kFwd, kMain, NumericType::kF32},
        AttentionCase{"_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelIiEEEEvT0_", AttentionImpl::kCk, kFwd, kMain,
                      NumericType::kUnknown},
        AttentionCase{"_ZN5aiter30fmha_fwd_hd128_bf16_causal_rtneE", AttentionImpl::kAiter, kFwd, kMain,
                      NumericType::kBF16},
        AttentionCase{"void vllm::paged_attention_v2_reduce_kernel<__nv_bfloat16>(int)",
                      AttentionImpl::kVllmPaged, kFwd, AttentionRole::kCombine, NumericType::kBF16},
        AttentionCase{
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::half_t>(int)",
            AttentionImpl::kFlash2, kBwd, kMain, NumericType::kF16},
        AttentionCase{"bwd_kernel_dk_dv", AttentionImpl::kAotriton, kBwd, kMain, NumericType::kUnknown}));

TEST(KernelName, CacheWriteThatSaysFlashIsNotAttention) {
  const KernelName k = decode_kernel_name(
      "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>("
      "__nv_bfloat16 const*, __nv_bfloat16 const*, unsigned char*)");
  EXPECT_EQ(k.kind, KernelKind::kCacheWrite);
  EXPECT_EQ(k.implementation, AttentionImpl::kNone);
}

TEST(KernelName, FlashTraitsGiveTheTile) {
  const KernelName k = decode_kernel_name(
      "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 32, 4, "
      "false>>()");
  EXPECT_EQ(k.tile, (Tile{128, 32, 64}));
  EXPECT_EQ(k.tensor_cores, Tristate::kYes);
}

struct KindCase {
  const char* name;
  KernelKind kind;
  const char* operation;
};
class KindNames : public testing::TestWithParam<KindCase> {};

TEST_P(KindNames, AreTold) {
  const KernelName k = decode_kernel_name(GetParam().name);
  EXPECT_EQ(kind_name(k.kind), kind_name(GetParam().kind)) << GetParam().name;
  EXPECT_EQ(k.operation, GetParam().operation);
}

INSTANTIATE_TEST_SUITE_P(
    Seen, KindNames,
    testing::Values(
        KindCase{"void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, "
                 "false, "
                 "false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)",
                 KernelKind::kSoftmax, "softmax"},
        KindCase{
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::("
            "anonymous namespace)::masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)::{lambda()#1}>"
            ">(int)",
            KernelKind::kMask, "masked_fill"},
        KindCase{"void at::native::triu_tril_kernel<bool, int, false, 8, "
                 "false>(at::cuda::detail::TensorInfo<bool, "
                 "int>, long, long, int)",
                 KernelKind::kMask, "triu/tril"},
        KindCase{"void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, "
                 "c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, "
                 "std::array<char*, "
                 "2ul> >(int)",
                 KernelKind::kElementwise, "mul"},
        KindCase{
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<"
            "char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
            KernelKind::kFill, "fill"},
        KindCase{
            "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::"
            "TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
            KernelKind::kCast, "to bf16"},
        KindCase{
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::func_wrapper_t<"
            "bool, at::native::and_kernel_cuda(at::TensorIterator&)::{lambda()#1}> > >(int)",
            KernelKind::kReduction, "all"},
        KindCase{"void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(int)",
                 KernelKind::kReduction, "split-K reduce"},
        KindCase{"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", KernelKind::kComm,
                 "collective"},
        KindCase{"volta_scudnn_128x64_relu_interior_nn_v1", KernelKind::kConv, "convolution"},
        KindCase{"void nchwToNhwcKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>(int)",
                 KernelKind::kTranspose, "nchw to nhwc"},
        KindCase{"Kernel", KernelKind::kUnknown, ""}));

TEST(KernelName, DirectCopyIsACastOnlyWhenItsLoaderConverts) {
  const KernelName cast = decode_kernel_name(
      "void "
      "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
      "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, "
      "std::array<char*, "
      "2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, "
      "at::native::"
      "memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int)");
  EXPECT_EQ(cast.kind, KernelKind::kCast);
  EXPECT_EQ(cast.output, NumericType::kF32);
  const KernelName copy = decode_kernel_name(
      "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
      "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
      "const::{lambda(float)#1}>>()");
  EXPECT_EQ(copy.kind, KernelKind::kCopy);
}

TEST(KernelName, InductorNamesAreSplitIntoOperators) {
  const KernelName k =
      decode_kernel_name("triton_per_fused__softmax_exp_masked_fill_mul_prepare_softmax_online_sub_view_0");
  EXPECT_EQ(k.kind, KernelKind::kFused);
  EXPECT_EQ(k.fused, (std::vector<std::string>{"_softmax", "exp", "masked_fill", "mul",
                                               "prepare_softmax_online", "sub", "view"}));
  EXPECT_EQ(decode_kernel_name("triton_poi_fused__to_copy_1").kind, KernelKind::kCast);
  EXPECT_EQ(decode_kernel_name("triton_poi_fused_flex_attention_3").implementation, AttentionImpl::kNone);
}

TEST(KernelName, OperatorsAreKernelsOnTheCpu) {
  EXPECT_EQ(decode_operator_name("aten::bmm").kind, KernelKind::kGemm);
  EXPECT_EQ(decode_operator_name("aten::add_").kind, KernelKind::kElementwise);
  EXPECT_EQ(decode_operator_name("aten::constant_pad_nd").kind, KernelKind::kUnknown);
  EXPECT_EQ(decode_operator_name("aten::_softmax").kind, KernelKind::kSoftmax);
  const KernelName flash = decode_operator_name("aten::_scaled_dot_product_flash_attention_for_cpu");
  EXPECT_EQ(flash.implementation, AttentionImpl::kCpuFlash);
  EXPECT_EQ(decode_operator_name("aten::_scaled_dot_product_efficient_attention_backward").pass, kBwd);
  EXPECT_EQ(decode_operator_name("aten::_scaled_dot_product_attention_math").implementation,
            AttentionImpl::kAtenMath);
}

TEST(KernelName, OurOwnKernelsAreKnown) {
  for (const char* name : {"flash_forward", "attention_forward", "decode_forward", "decode_forward_simple",
                           "decode_combine", "cache_append", "mla_forward", "mla_combine"})
    EXPECT_EQ(decode_kernel_name(name).implementation, AttentionImpl::kAttnscope) << name;
  EXPECT_EQ(
      decode_kernel_name("void attnscope::cuda_unfused::softmax_registers<__half, 32>(__half const*, int)")
          .kind,
      KernelKind::kSoftmax);
  EXPECT_EQ(decode_kernel_name(
                "void attnscope::cuda_unfused::(anonymous namespace)::band_kernel(unsigned char*, long)")
                .kind,
            KernelKind::kMask);
  EXPECT_EQ(decode_kernel_name("attnscope::naive").implementation, AttentionImpl::kNone);
  EXPECT_EQ(decode_kernel_name("attnscope::math").implementation, AttentionImpl::kAtenMath);
}

TEST(KernelName, HostileNamesAreHarmless) {
  EXPECT_EQ(decode_kernel_name("").kind, KernelKind::kUnknown);
  EXPECT_EQ(decode_kernel_name(std::string(1 << 20, '<')).kind, KernelKind::kUnknown);
  EXPECT_EQ(decode_kernel_name("_Z" + std::string(100000, 'N')).kind, KernelKind::kUnknown);
  (void)decode_kernel_name("triton_poi_fused_" + std::string(100000, '_'));
  (void)decode_kernel_name("sgemm_99999999999999999999x99999999999999999999");
}

TEST(KernelName, EveryKindIsDescribedOnce) {
  std::set<std::string_view> names;
  for (const KindDescription& k : sequence_kinds()) {
    EXPECT_TRUE(names.insert(k.name).second) << k.name;
    EXPECT_EQ(kind_name(k.kind), k.name);
    EXPECT_FALSE(k.meaning.empty());
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(KernelKind::kFused) + 1);
}

}  // namespace
}  // namespace attnscope
