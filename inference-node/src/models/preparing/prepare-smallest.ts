import { loadManifest } from '../manifest.ts';
import type { PreparedModel } from '../prepared-model.ts';
import type { Preparation } from './build-plan.ts';
import { prepareModel } from './prepare.ts';

/** A prepared model again, at the smallest square that it takes. Throws as prepareModel does. */
export async function prepareSmallest(
  { model: name, precision }: PreparedModel,
  preparation: Preparation,
): Promise<PreparedModel> {
  const manifest = await loadManifest(name, preparation.manifestDirectory);
  const { min: side } = manifest.inputSize;
  const inputSize = { width: side, height: side };
  return await prepareModel({ ...preparation, manifest, inputSize, precision });
}
