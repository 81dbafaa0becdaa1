/** `models list`: what there is, under which licence, and what of it is on this machine. */
import type { Writable } from 'node:stream';
import { refusalsOf } from '../../serving/models/commercial-use.ts';
import type { UseTerms } from '../../serving/models/licence.ts';
import { listManifests, loadManifest, type ModelManifest } from '../../serving/models/manifest.ts';
import type { ModelSettings } from '../../serving/models/model-settings.ts';
import { listPrepared, PREPARER_REVISION } from '../../serving/prepared/prepared-cache.ts';
import { findWeightsFile, type WeightsPlaces } from '../../serving/prepared/weights-cache.ts';
import type { CliConfig } from './cli-config.ts';

type FetchedState = 'yes' | 'no' | 'damaged';

type ListedModel = Awaited<ReturnType<typeof describe>>;

export async function modelsList(
  options: { readonly json?: boolean },
  config: CliConfig,
  out: Writable,
): Promise<void> {
  const models: ListedModel[] = [];
  for (const name of await listManifests()) {
    models.push(await describe(await loadManifest(name), config.settings));
  }
  if (options.json) {
    out.write(`${JSON.stringify({ models }, null, 2)}\n`);
    return;
  }
  for (const model of models) out.write(lines(model));
}

async function describe(manifest: ModelManifest, settings: ModelSettings) {
  const { modelDir: cacheDir, weightsDir, commercialUse } = settings;
  const { spdx, weights, trainingData } = manifest.licence;
  const prepared = await listPrepared(cacheDir, manifest);
  return {
    name: manifest.name,
    version: manifest.version,
    description: manifest.description,
    licence: spdx,
    trainingData: trainingData.reason,
    terms: { weights, trainingData },
    /** By MATTING_COMMERCIAL_USE. */
    admitted: refusalsOf(manifest, commercialUse).length === 0,
    fetched: await fetchedState(manifest, { cacheDir, weightsDir }),
    prepared: prepared.map(({ path, sidecar }) => ({
      path,
      inputWidth: sidecar.inputWidth,
      inputHeight: sidecar.inputHeight,
      precision: sidecar.precision,
      provider: sidecar.provider,
      instructionSet: sidecar.instructionSet,
      /** False: of another release of the product; it is not loaded. */
      current: sidecar.revision === PREPARER_REVISION,
    })),
  };
}

async function fetchedState(manifest: ModelManifest, places: WeightsPlaces): Promise<FetchedState> {
  let state: FetchedState = 'yes';
  for (const file of manifest.files) {
    const { check } = await findWeightsFile(places, manifest, file);
    if (check.state === 'altered') return 'damaged';
    if (check.state === 'missing') state = 'no';
  }
  return state;
}

function lines(model: ListedModel): string {
  const text = [
    `${model.name} ${model.version}  ${model.licence}  fetched: ${model.fetched}`,
    `  ${model.description}`,
    `  Weights: ${line(model.terms.weights)}`,
    `  Training data: ${line(model.terms.trainingData)}`,
  ];
  if (!model.admitted) text.push('  Refused by MATTING_COMMERCIAL_USE');
  for (const file of model.prepared) {
    const size = `${file.inputWidth}x${file.inputHeight}`;
    const state = file.current ? '' : ' (of another release)';
    text.push(
      `  prepared: ${size} ${file.precision} ${file.provider} ${file.instructionSet}${state}`,
    );
  }
  return `${text.join('\n')}\n`;
}

function line({ commercialUse, reason, source }: UseTerms): string {
  return `commercial use ${commercialUse}. ${reason} ${source}`;
}
