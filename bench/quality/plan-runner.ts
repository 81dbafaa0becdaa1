/** A plan's models, run in its order. */
import {
  outlineOf,
  type PlanEntry,
  parseModelSettings,
} from '../../inference-node/serving/models/plan.ts';
import type { RoleMatte } from '../../inference-node/serving/picture/matte/merge-mattes.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import { isWorthRunning } from '../../inference-node/serving/picture/worth-running.ts';
import type { ModelRunner } from './model-runner.ts';

/** @throws ModelError */
export async function entriesOf(of: {
  readonly plan?: string | undefined;
  readonly model?: string | undefined;
}): Promise<readonly PlanEntry[]> {
  const env = { MATTING_MODEL: of.model, MATTING_QUALITY: of.plan };
  return (await outlineOf(parseModelSettings(env, process.cwd()))).entries;
}

/** In the plan's order, a subject first; without what a node would not run. */
export async function inferPlan(
  entries: readonly PlanEntry[],
  models: ModelRunner,
  picture: RgbaPicture,
): Promise<RoleMatte[]> {
  const mattes: RoleMatte[] = [];
  for (const entry of entries) {
    const [first] = mattes;
    if (first !== undefined && !isWorthRunning(entry.role, first.alpha)) continue;
    mattes.push(await models.run(entry, picture));
  }
  return mattes;
}
