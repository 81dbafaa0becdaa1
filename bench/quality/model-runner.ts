/**
 * Models on engines of their own, without a node around them. An engine starts at the first picture
 * without a kept matte: with mattes kept, trying a merge or a refinement needs no engine.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pino from 'pino';
import { makePrepared } from '../../inference-node/model-tools/preparing/prepare.ts';
import { createAnswering } from '../../inference-node/serving/engine/choice/run-once.ts';
import type { EnginePool } from '../../inference-node/serving/engine/pool/engine-pool.ts';
import { openEnginePool } from '../../inference-node/serving/engine/pool/open-engine-pool.ts';
import type { PlanEntry } from '../../inference-node/serving/models/plan.ts';
import type { PreparedModel } from '../../inference-node/serving/models/prepared-model.ts';
import type { RoleMatte } from '../../inference-node/serving/picture/matte/merge-mattes.ts';
import { createRunInput } from '../../inference-node/serving/picture/matte/run-input-pixels.ts';
import type { RgbaPicture } from '../../inference-node/serving/picture/rgba-picture.ts';
import type { RunInput } from '../../inference-node/serving/picture/run-input.ts';
import { buildPlan } from '../../inference-node/serving/prepared/load-prepared.ts';
import { parseModelSettings } from '../../inference-node/serving/test/model-settings.ts';
import { at } from '../../test/support/at.ts';

const PROJECT = path.join(import.meta.dirname, '../..');

export interface ModelRunner {
  /** The weights must have been fetched (`models fetch`). @throws ModelError */
  run(entry: PlanEntry, picture: RgbaPicture, input?: RunInput): Promise<RoleMatte>;
  close(): Promise<void>;
}

/** An engine on the CPU has so many. */
const THREADS = 2;

/** @param keptIn a directory that mattes are kept in, by picture, weights and size. */
export function openModelRunner(keptIn: string | undefined): ModelRunner {
  if (keptIn !== undefined) mkdirSync(keptIn, { recursive: true });
  const prepared = new Map<string, Promise<PreparedModel>>();
  const engines = new Map<PreparedModel, EnginePool>();
  const prepareOnce = (entry: PlanEntry) => {
    const key = `${entry.model}-${entry.inputSize}`;
    const model = prepared.get(key) ?? prepareEntry(entry);
    prepared.set(key, model);
    return model;
  };
  return {
    run: async (entry, picture, input) => {
      const model = await prepareOnce(entry);
      const size = { width: model.inputWidth, height: model.inputHeight };
      const name = nameOf(model, picture, input);
      const file = keptIn === undefined ? undefined : path.join(keptIn, name);
      if (file !== undefined && existsSync(file)) {
        return { alpha: new Uint8Array(readFileSync(file)), ...size, role: entry.role };
      }
      const pool = engines.get(model) ?? startEngine(model);
      engines.set(model, pool);
      await pool.ready();
      const rgb = createRunInput(picture, size, input);
      const signal = new AbortController().signal;
      const { alpha } = await pool.run({ rgb, priority: 'sync', signal });
      if (file !== undefined) {
        // Renamed, so that a run that is cut short leaves no half of a matte.
        writeFileSync(`${file}.part`, alpha);
        renameSync(`${file}.part`, file);
      }
      return { alpha, ...size, role: entry.role };
    },
    close: async () => {
      await Promise.all([...engines.values()].map(pool => pool.close(0)));
    },
  };
}

async function prepareEntry(entry: PlanEntry): Promise<PreparedModel> {
  const { MATTING_MODEL_DIR } = process.env;
  const settings = parseModelSettings({ MATTING_MODEL_DIR }, PROJECT);
  const { models } = await buildPlan({
    outline: { name: entry.model, entries: [{ ...entry, role: 'subject' }] },
    cacheDir: settings.modelDir,
    ...({ precision: 'auto', provider: 'cpu' } as const),
    answering: createAnswering({ childEnv: {}, threads: THREADS }),
    make: makePrepared,
  });
  return at(models, 0).model;
}

function startEngine(model: PreparedModel): EnginePool {
  const log = pino({ level: 'silent' });
  return openEnginePool({ model, engines: 1, threadsPerEngine: THREADS, childEnv: {}, log });
}

function nameOf(
  model: PreparedModel,
  { rgba, width, height }: RgbaPicture,
  input: RunInput | undefined,
): string {
  const hash = createHash('sha256').update(model.sha256).update(`${width}x${height}`);
  hash.update(new Uint8Array(rgba.buffer, rgba.byteOffset, rgba.byteLength));
  const beyond = input && 'beyond' in input ? input.beyond.join('-') : '';
  const side = `${model.inputWidth}x${model.inputHeight}${input ? `-${input.kind}${beyond}` : ''}`;
  return `${model.model}-${side}-${hash.digest('hex').slice(0, 32)}.alpha`;
}
