/* All operators, one line per file. */
/* unary.c */
OP(Relu)
OP(ReluGrad) OP(LeakyRelu) OP(LeakyReluGrad) OP(ThresholdedRelu) OP(ThresholdedReluGrad) OP(Elu) OP(
	EluGrad) OP(Selu) OP(SeluGrad) OP(Celu) OP(CeluGrad) OP(Sigmoid) OP(SigmoidGrad) OP(HardSigmoid)
	OP(HardSigmoidGrad) OP(HardSwish) OP(HardSwishGrad) OP(Softplus) OP(SoftplusGrad) OP(Softsign) OP(
		SoftsignGrad) OP(Tanh) OP(TanhGrad) OP(Erf) OP(ErfGrad) OP(Exp) OP(ExpGrad) OP(Log)
		OP(LogGrad) OP(Sqrt) OP(SqrtGrad) OP(Reciprocal) OP(ReciprocalGrad) OP(Abs) OP(AbsGrad) OP(
			Sin) OP(SinGrad) OP(Cos) OP(CosGrad) OP(Neg) OP(Sign) OP(Floor) OP(Ceil) OP(Round)
			OP(Not) OP(Tan) OP(TanGrad) OP(Asin) OP(AsinGrad) OP(Acos) OP(AcosGrad) OP(Atan)
				OP(AtanGrad) OP(Sinh) OP(SinhGrad) OP(Cosh) OP(CoshGrad) OP(Asinh)
					OP(AsinhGrad) OP(Acosh) OP(AcoshGrad) OP(Atanh) OP(AtanhGrad) OP(Mish)
						OP(MishGrad) OP(Swish) OP(SwishGrad) OP(Shrink) OP(ShrinkGrad)
							OP(IsNaN) OP(IsInf) OP(BitwiseAnd) OP(BitwiseOr)
								OP(BitwiseXor) OP(BitwiseNot)
									OP(BitShift) /* bits.c */
	OP(SwiGLU) OP(SwiGLUGrad) OP(SwiGLUGradValue) /* swiglu.c */
	OP(Gelu) OP(GeluGrad) /* gelu.c */
	OP(AddRelu) /* add_relu.c */
	OP(Product) /* product.c */
	/* binary.c */
	OP(Add) OP(Sub) OP(Mul) OP(Div) OP(DivGradB) OP(DivOrZero) OP(Pow) OP(PowGrad) OP(PowGradP) OP(PRelu)
		OP(PReluGrad) OP(PReluGradSlope) OP(Mod) OP(Equal) OP(Less) OP(LessOrEqual) OP(Greater)
			OP(GreaterOrEqual) OP(And) OP(Or) OP(Xor) OP(Where) OP(Sum) OP(Mean) OP(Max)
				OP(MaxGrad) OP(Min) OP(MinGrad) OP(Clip) OP(ClipGrad) OP(Gemm) OP(MatMul)
					OP(MatMulT) /* gemm.c */
	OP(Conv) OP(ConvGradInput) OP(ConvGradWeight) OP(ConvTranspose) /* conv.c */
	/* pool.c */
	OP(MaxPool) OP(GlobalMaxPool) OP(MaxPoolGrad) OP(AveragePool) OP(GlobalAveragePool)
		OP(AveragePoolGrad) OP(BatchNormalization) OP(BatchNormalizationGrad)
			OP(BatchNormalizationGradInfer) /* batch_norm.c */
	OP(Softmax) OP(LogSoftmax) OP(SoftmaxGrad) OP(LogSoftmaxGrad) /* softmax.c */
	/* loss.c */
	OP(SoftmaxCrossEntropyLoss) OP(SoftmaxCrossEntropyLossGrad) OP(NegativeLogLikelihoodLoss)
		OP(NegativeLogLikelihoodLossGrad)
	/* loss_mean.c */
	OP(BinaryCrossEntropyLoss) OP(BinaryCrossEntropyLossGrad) OP(MeanSquaredErrorLoss)
		OP(MeanSquaredErrorLossGrad) OP(MeanAbsoluteErrorLoss) OP(MeanAbsoluteErrorLossGrad)
			OP(HuberLoss) OP(HuberLossGrad) OP(SmoothL1Loss) OP(SmoothL1LossGrad)
				OP(KLDivergenceLoss) OP(KLDivergenceLossGrad)
	OP(NextToken) /* pad.c */
	/* loss_parts.c */
	OP(CrossEntropyPart) OP(CrossEntropyPartGrad) OP(CrossEntropyJoin) OP(CrossEntropyJoinGrad)
		OP(Dropout) OP(DropoutGrad) /* dropout.c */
	OP(RandomUniformLike) OP(RandomNormalLike) OP(Bernoulli) /* random.c */
	OP(Identity) OP(Reshape) OP(Flatten) OP(Squeeze) OP(Unsqueeze) /* view.c */
	OP(Layout) /* layout.c */
	OP(Update) /* update.c */
	OP(SumLoss) OP(SumLossGrad) /* sum_loss.c */
	OP(LayoutView) /* layout.c */
	OP(TransposeView) /* layout.c */
	OP(Shape) OP(Size) OP(Constant) OP(ConstantOfShape) OP(EyeLike) OP(Range) OP(Cast)
		OP(CastLike) /* shape.c */
	/* reduce.c */
	OP(ReduceSum) OP(ReduceMean) OP(ReduceMax) OP(ReduceMin) OP(ReduceProd) OP(ReduceSumSquare)
		OP(ReduceL1) OP(ReduceL2) OP(ReduceLogSum) OP(ReduceLogSumExp) OP(ReduceGrad)
			OP(ReduceExtremeGrad) OP(ReduceProdGrad) OP(Transpose) OP(Slice) OP(SliceGrad)
				OP(Concat) OP(Split) OP(Expand) OP(Tile) /* move.c */
	OP(SampleSplit) OP(SampleConcat) /* samples.c */
	OP(Gather) OP(GatherGrad) /* gather.c */
	OP(TrainingMomentum) OP(TrainingAdam) OP(TrainingAdagrad) /* training.c */
	OP(Pad) OP(CenterCropPad) OP(PadGrad) /* pad.c */
	/* layer_norm.c */
	OP(LayerNormalization) OP(LayerNormalizationGrad) OP(RMSNormalization) OP(RMSNormalizationGrad)
		OP(InstanceNormalization) OP(InstanceNormalizationGrad) OP(GroupNormalization)
			OP(GroupNormalizationGrad) OP(Attention) OP(StridedAttention)
				OP(AttentionGrad) /* attention.c */
	OP(RotaryEmbedding) OP(RotaryEmbeddingGradTables) /* rotary.c */
	OP(TensorScatter) OP(TensorScatterGrad) /* tensor_scatter.c */
	/* linear_attention.c */
	OP(LinearAttention) OP(LinearAttentionGrad) OP(CausalConvWithState)
		OP(CausalConvWithStateGrad) /* causal_conv.c */
	OP(LRN) OP(LRNGrad) /* lrn.c */
	OP(Resize) OP(Upsample) OP(ResizeGrad) /* resize.c */
	/* index.c */
	OP(GatherElements) OP(GatherElementsGrad) OP(GatherND) OP(GatherNDGrad) OP(ScatterElements)
		OP(ScatterElementsClear) OP(ScatterND) OP(ScatterNDClear) OP(TopK) OP(ArgMax) OP(ArgMin)
			OP(Hardmax) OP(OneHot) /* select.c */
	OP(NonZero) OP(PaddedNonZero) OP(CountedMask) /* nonzero.c */
	OP(Trilu) /* triangle.c */
	OP(CumSum) OP(CumProd) OP(CumProdGrad) /* cumulative.c */
	OP(DFT) OP(DFTGrad) OP(STFT) OP(STFTGrad) /* dft.c */
	OP(HannWindow) OP(HammingWindow) OP(BlackmanWindow) OP(MelWeightMatrix) /* window.c */
	/* lp_normalization.c */
	OP(LpNormalization) OP(LpNormalizationGrad) OP(DepthToSpace) OP(SpaceToDepth) /* depth_space.c */
	OP(Einsum) OP(EinsumGrad) /* einsum.c */
	OP(RNN) OP(RNNGrad) OP(GRU) OP(GRUGrad) OP(LSTM) OP(LSTMGrad) /* recurrent.c */
	/* reverse_sequence.c */
	OP(ReverseSequence) OP(MeanVarianceNormalization) /* mean_variance.c */
	OP(GridSample) OP(GridSampleGrad) OP(GridSampleGradGrid) /* grid_sample.c */
	OP(LpPool) OP(GlobalLpPool) OP(LpPoolGrad) /* lp_pool.c */
	OP(Col2Im) OP(Col2ImGrad) /* col2im.c */
	OP(MaxUnpool) OP(MaxUnpoolGrad) /* max_unpool.c */
	OP(RoiAlign) OP(RoiAlignGrad) /* roi_align.c */
	/* deform_conv.c */
	OP(DeformConv) OP(DeformColumns) OP(DeformColumnsGrad) OP(DeformColumnsGradOffset) OP(AffineGrid)
		OP(AffineGridGrad) /* affine_grid.c */
