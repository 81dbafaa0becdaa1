/** Runs a plan over recorded mattes by the product's own decisions, so that constants can be tried. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { outlineOf, type PlanEntry } from '../../inference-node/serving/models/plan.ts';
import {
  inferPlan,
  PLAN_RULES,
  type PlanRules,
} from '../../inference-node/serving/picture/infer-plan.ts';
import { chooseMattes } from '../../inference-node/serving/picture/matte/choose-mattes.ts';
import type { RoleMatte } from '../../inference-node/serving/picture/matte/merge-mattes.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import type { RunInput } from '../../inference-node/serving/picture/run-input.ts';
import { parseModelSettings } from '../../inference-node/serving/test/model-settings.ts';
import type { ModelRunner } from './model-runner.ts';

export interface Replay {
  readonly mattes: readonly RoleMatte[];
  /** Every run, including those that do not count. */
  readonly taken: readonly { readonly entry: PlanEntry; readonly input: RunInput | undefined }[];
}

/** @throws ModelError */
export async function entriesOf(plan: string): Promise<readonly PlanEntry[]> {
  const settings = parseModelSettings({ MATTING_QUALITY: plan }, process.cwd());
  return (await outlineOf(settings)).entries;
}

/** Runs each model once on the picture, however many rules need it. */
export function openReplay(
  entries: readonly PlanEntry[],
  models: ModelRunner,
  picture: RgbaPicture,
): (rules?: PlanRules) => Promise<Replay> {
  const plan = entries.map(entry => ({ model: entry, role: entry.role, entry }));
  const recorded = new Map<string, Promise<RoleMatte>>();
  return async (rules = PLAN_RULES) => {
    const taken: Replay['taken'][number][] = [];
    const { mattes } = await inferPlan(
      plan,
      { picture },
      async ({ entry: { entry }, input }) => {
        taken.push({ entry, input });
        const key = `${entries.indexOf(entry)} ${JSON.stringify(input)}`;
        const matte = recorded.get(key) ?? models.run(entry, picture, input);
        recorded.set(key, matte);
        const { alpha, width, height } = await matte;
        return { alpha: Buffer.from(alpha.buffer, alpha.byteOffset), size: { width, height } };
      },
      (mattes, ...how) => chooseMattes(mattes.map(flat), ...how),
      // A part of the picture has mattes of its own: what is judged here are those of all of it.
      { ...rules, zoomed: { ...rules.zoomed, boxShareMax: 0 } },
    );
    return { mattes: mattes.map(flat), taken };
  };
}

function flat({ alpha, size, role }: Pick<RoleMatte, 'alpha' | 'role'> & { readonly size: Size }) {
  return { alpha, ...size, role };
}
