/** Runs a plan over recorded mattes by the product's own decisions, so that constants can be tried. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { outlineOf, type PlanEntry } from '../../inference-node/serving/models/plan.ts';
import {
  inferPlan,
  LOOK_RULES,
  type LookRules,
} from '../../inference-node/serving/picture/infer-plan.ts';
import type { LookInput } from '../../inference-node/serving/picture/look-input.ts';
import { chooseLook } from '../../inference-node/serving/picture/matte/choose-look.ts';
import type { RoleMatte } from '../../inference-node/serving/picture/matte/merge-mattes.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import { parseModelSettings } from '../../inference-node/serving/test/model-settings.ts';
import type { ModelRunner } from './model-runner.ts';

export interface Replay {
  readonly mattes: readonly RoleMatte[];
  /** Every look that was taken, including those that do not count. */
  readonly taken: readonly { readonly entry: PlanEntry; readonly input: LookInput | undefined }[];
}

/** @throws ModelError */
export async function entriesOf(plan: string): Promise<readonly PlanEntry[]> {
  const settings = parseModelSettings({ MATTING_QUALITY: plan }, process.cwd());
  return (await outlineOf(settings)).entries;
}

/** Takes each look of the picture once, however many rules ask for it. */
export function openReplay(
  entries: readonly PlanEntry[],
  models: ModelRunner,
  picture: RgbaPicture,
): (rules?: LookRules) => Promise<Replay> {
  const plan = entries.map(entry => ({ model: entry, role: entry.role, entry }));
  const looks = new Map<string, Promise<RoleMatte>>();
  return async (rules = LOOK_RULES) => {
    const taken: Replay['taken'][number][] = [];
    const { mattes } = await inferPlan(
      plan,
      { picture },
      async ({ run: { entry }, input }) => {
        taken.push({ entry, input });
        const key = `${entries.indexOf(entry)} ${JSON.stringify(input)}`;
        const look = looks.get(key) ?? models.run(entry, picture, input);
        looks.set(key, look);
        const { alpha, width, height } = await look;
        return { alpha: Buffer.from(alpha.buffer, alpha.byteOffset), size: { width, height } };
      },
      (mattes, ...how) => chooseLook(mattes.map(flat), ...how),
      // A part of the picture has mattes of its own: what is judged here are those of all of it.
      { ...rules, zoomed: { ...rules.zoomed, boxShareMax: 0 } },
    );
    return { mattes: mattes.map(flat), taken };
  };
}

function flat({ alpha, size, role }: Pick<RoleMatte, 'alpha' | 'role'> & { readonly size: Size }) {
  return { alpha, ...size, role };
}
