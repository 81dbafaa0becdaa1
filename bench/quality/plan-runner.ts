/** A plan's models on engines of their own, without a node around them. */
import path from 'node:path';
import pino from 'pino';
import { createAnswering } from '../../inference-node/src/engine/choice/answer-picture.ts';
import { openEnginePool } from '../../inference-node/src/engine/pool/open-engine-pool.ts';
import { parseModelSettings } from '../../inference-node/src/models/model-settings.ts';
import { outlineOf } from '../../inference-node/src/models/plan.ts';
import { buildPlan } from '../../inference-node/src/models/preparing/build-plan.ts';
import { detectInstructionSet } from '../../inference-node/src/models/preparing/instruction-set.ts';
import type { RoleMatte } from '../../inference-node/src/picture/matte/merge-mattes.ts';
import { createModelInput } from '../../inference-node/src/picture/matte/model-input.ts';
import type { RgbaPicture } from '../../inference-node/src/picture/rgba-picture.ts';
import { isWorthSecondLook } from '../../inference-node/src/picture/second-look.ts';
import { at } from '../../test/support/at.ts';

const THREADS = 2;
const PROJECT = path.join(import.meta.dirname, '../..');

export interface PlanRunner {
  /** In the plan's order, a subject first; without a second look where a node takes none. */
  infer(picture: RgbaPicture): Promise<RoleMatte[]>;
  close(): Promise<void>;
}

/** The weights must have been fetched (`models fetch`). @throws ModelError */
export async function openPlan(of: {
  readonly plan: string | undefined;
  readonly model: string | undefined;
}): Promise<PlanRunner> {
  const settings = parseModelSettings(
    { MATTING_MODEL: of.model, MATTING_QUALITY: of.plan },
    PROJECT,
  );
  const { models } = await buildPlan({
    outline: await outlineOf(settings),
    cacheDir: settings.modelDir,
    precision: settings.precision,
    provider: 'cpu',
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({ childEnv: {}, threads: THREADS }),
  });
  const log = pino({ level: 'silent' });
  const runs = models.map(({ model, role }) => ({
    model,
    role,
    engines: openEnginePool({ model, engines: 1, threadsPerEngine: THREADS, childEnv: {}, log }),
  }));
  await Promise.all(runs.map(({ engines }) => engines.ready()));
  const signal = new AbortController().signal;
  return {
    infer: async picture => {
      const mattes: RoleMatte[] = [];
      for (const { model, role, engines } of runs) {
        if (role === 'secondLook' && !isWorthSecondLook(at(mattes, 0).alpha)) continue;
        const size = { width: model.inputWidth, height: model.inputHeight };
        const rgb = createModelInput(picture, size);
        const { alpha } = await engines.run({ rgb, priority: 'sync', signal });
        mattes.push({ alpha, ...size, role });
      }
      return mattes;
    },
    close: async () => {
      await Promise.all(runs.map(({ engines }) => engines.close(0)));
    },
  };
}
