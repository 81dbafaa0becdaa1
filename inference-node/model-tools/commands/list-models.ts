import type { Writable } from 'node:stream';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { refusalsOf } from '@matting/serving/models/plan.ts';
import { listPrepared, PREPARER_REVISION } from '@matting/serving/prepared/prepared-cache.ts';
import { findWeightsFile, type WeightsFolders } from '@matting/serving/prepared/weights-cache.ts';
import { findByName, loadCatalogue } from '../adding/catalogue.ts';
import type { CliConfig } from './cli-config.ts';

type FetchedState = 'yes' | 'no' | 'damaged';

type ListedModel = Awaited<ReturnType<typeof describe>> & { readonly added: boolean };

export async function modelsList(
  options: { readonly json?: boolean; readonly catalogue?: boolean },
  config: CliConfig,
  out: Writable,
): Promise<void> {
  if (options.catalogue) return await listCatalogue(options, out);
  const models: ListedModel[] = [];
  const { addedModelsDir } = config.settings;
  const shipped = await listManifests();
  for (const name of await listManifests(undefined, addedModelsDir)) {
    const manifest = await loadManifest(name, undefined, addedModelsDir);
    models.push({
      ...(await describe(manifest, config.settings)),
      added: !shipped.includes(name),
    });
  }
  if (options.json) {
    out.write(`${JSON.stringify({ models }, null, 2)}\n`);
    return;
  }
  for (const model of models) out.write(lines(model));
}

async function listCatalogue(options: { readonly json?: boolean }, out: Writable): Promise<void> {
  const catalogue = await loadCatalogue();
  if (options.json) {
    out.write(`${JSON.stringify({ catalogue }, null, 2)}\n`);
    return;
  }
  for (const { name, title, role, goodFor, files, licence, verified, measuredBy } of catalogue) {
    const [graph] = files;
    const bytes = graph?.bytes;
    const remarks = [name, licence.spdx];
    if (bytes !== undefined) remarks.push(`${Math.round(bytes / 1e6)} MB`);
    if (!verified) remarks.push('not run by us');
    if (graph?.sha256 === undefined) remarks.push('pinned on first use');
    if (role === 'refine') remarks.push("refines another model's matte");
    const text = [
      remarks.join('  '),
      `  ${title}: ${goodFor}`,
      `  Weights: ${line(licence.weights)}`,
      `  Training data: ${line(licence.trainingData)}`,
    ];
    if (measuredBy !== undefined) text.push(`  ${measuredBy}`);
    out.write(`${text.join('\n')}\n`);
  }
}

export async function modelsShow(name: string, config: CliConfig, out: Writable): Promise<void> {
  const { addedModelsDir } = config.settings;
  const names = await listManifests(undefined, addedModelsDir);
  const row = names.includes(name) ? undefined : findByName(await loadCatalogue(), name);
  const shown = row ?? (await loadManifest(name, undefined, addedModelsDir));
  out.write(`${JSON.stringify(shown, null, 2)}\n`);
}

async function describe(manifest: ModelManifest, settings: CliConfig['settings']) {
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
    /** True: the model only has the role refine in plans, and cannot run alone. */
    refines: manifest.graph.trimap === true,
    peakBytes: manifest.measured?.peakBytes ?? null,
    admitted: refusalsOf(manifest, commercialUse).length === 0,
    fetched: await fetchedState(manifest, { cacheDir, weightsDir }),
    prepared: prepared.map(({ path, sidecar }) => ({
      path,
      inputWidth: sidecar.inputWidth,
      inputHeight: sidecar.inputHeight,
      precision: sidecar.precision,
      provider: sidecar.provider,
      instructionSet: sidecar.instructionSet,
      /** False: from another release, so it is not loaded. */
      current: sidecar.revision === PREPARER_REVISION,
    })),
  };
}

async function fetchedState(
  manifest: ModelManifest,
  folders: WeightsFolders,
): Promise<FetchedState> {
  let state: FetchedState = 'yes';
  for (const file of manifest.files) {
    const { check } = await findWeightsFile(folders, manifest, file);
    if (check.state === 'altered') return 'damaged';
    if (check.state === 'missing') state = 'no';
  }
  return state;
}

function lines(model: ListedModel): string {
  const added = model.added ? '  added' : '';
  const text = [
    `${model.name} ${model.version}  ${model.licence}  fetched: ${model.fetched}${added}`,
    `  ${model.description}`,
    `  Weights: ${line(model.terms.weights)}`,
    `  Training data: ${line(model.terms.trainingData)}`,
  ];
  if (model.peakBytes !== null) {
    text.push(`  memory: ${(model.peakBytes / 1e9).toFixed(1)} GB while running`);
  }
  if (model.refines) text.push("  refines another model's matte; use it in plans");
  if (!model.admitted) text.push('  Refused by MATTING_COMMERCIAL_USE');
  for (const file of model.prepared) {
    const size = `${file.inputWidth}x${file.inputHeight}`;
    const state = file.current ? '' : ' (by another release)';
    text.push(
      `  prepared: ${size} ${file.precision} ${file.provider} ${file.instructionSet}${state}`,
    );
  }
  return `${text.join('\n')}\n`;
}

function line({ commercialUse, reason, source }: ModelManifest['licence']['weights']): string {
  return `commercial use ${commercialUse}. ${reason} ${source}`;
}
