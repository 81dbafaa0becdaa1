/** A plan's models, run in its order. */
import {
  outlineOf,
  type PlanEntry,
  parseModelSettings,
} from '../../inference-node/serving/models/plan.ts';
import {
  FRAMED_RULES,
  isWorthFraming,
  withFramedLook,
} from '../../inference-node/serving/picture/framed-look.ts';
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

/**
 * As a node runs them: a subject first, without what it would not run or not believe. By other
 * rules than a node's where they are given.
 */
export async function inferPlan(
  entries: readonly PlanEntry[],
  models: ModelRunner,
  picture: RgbaPicture,
  { isWorth = isWorthRunning, framed: rules = FRAMED_RULES } = {},
): Promise<RoleMatte[]> {
  let mattes: SizedMatte[] = [];
  for (const entry of entries) {
    const [first] = mattes;
    if (first !== undefined && !isWorth(entry.role, first.alpha)) continue;
    if (first !== undefined && isWorthFraming(entry, entries[0]?.model, first.alpha, rules)) {
      const joined = withFramedLook(mattes, sized(await models.run(entry, picture, true)), rules);
      mattes = joined ?? mattes;
      if (joined !== undefined) continue;
    }
    mattes.push(sized(await models.run(entry, picture)));
  }
  return mattes.map(({ alpha, size, role }) => ({ alpha, ...size, role }));
}

type SizedMatte = ReturnType<typeof sized>;

function sized({ alpha, width, height, role }: RoleMatte) {
  return { alpha, size: { width, height }, role };
}
