/** What a result is said to be, ahead of its bytes. */
import { contentTypeOf, outputFormatToProto } from '#contract/formats.ts';
import {
  MissingRun,
  ModelRun,
  type ResultHeader,
  ResultKind,
} from '#gen/matting/v1/matte_service.ts';
import type { ImageResult } from '../pipeline.ts';
import { ROLE_LABELS } from '../run-labels.ts';
import type { MatteOrder } from './matte-header.ts';

const KIND_TO_PROTO = {
  cutout: ResultKind.RESULT_KIND_CUTOUT,
  mask: ResultKind.RESULT_KIND_MASK,
} as const;

export function resultHeader({ asked }: MatteOrder, result: ImageResult): ResultHeader {
  const modelRuns = result.runs.map(({ model: prepared }) => {
    const { model, sha256, precision, provider, inputWidth, inputHeight } = prepared;
    const { precisionFallback, licence } = prepared;
    return ModelRun.create({
      ...{ model, modelSha256: sha256, precision, executionProvider: provider },
      ...{ inputWidth, inputHeight },
      licence: licence.spdx,
      weightsCommercialUse: licence.weights.commercialUse,
      trainingDataCommercialUse: licence.trainingData.commercialUse,
      ...(precisionFallback !== undefined && { precisionFallback }),
    });
  });
  return {
    format: outputFormatToProto(result.outputFormat),
    contentType: contentTypeOf(result.outputFormat),
    sizeBytes: result.file.length,
    width: result.width,
    height: result.height,
    resultKind: KIND_TO_PROTO[result.resultKind],
    plan: result.plan.name,
    modelRuns,
    modelsMissing: result.missing.map(({ model }) => model.model),
    finishing: asked?.message,
    inputWidth: result.input.width,
    inputHeight: result.input.height,
    subject: result.subject,
    runsMissing: result.missing.map(({ model, role }) =>
      MissingRun.create({
        model: model.model,
        inputWidth: model.inputWidth,
        inputHeight: model.inputHeight,
        role: ROLE_LABELS[role],
      }),
    ),
  };
}
