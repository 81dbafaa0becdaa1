/** Two models beside the own plan, and in each node the memory for one. Needs: object-storage, removebg, mcp. */
import assert from 'node:assert/strict';
import path from 'node:path';
import ava from 'ava';
import sharp from 'sharp';
import { addTinyModel } from '../../inference-node/serving/test/added-model.ts';
import { type Ground, openOneMachine } from '../fleet/ground.ts';
import { skipReason } from '../support/database.ts';
import { skipWithoutMemoryGroups } from '../support/memory-group.ts';
import { describeStorm } from './fleet-storm.ts';
import { byModel, type Manner, PLAIN } from './manners.ts';

const KILLS_OF_EACH = Number(process.env.MATTING_CHAOS_KILLS ?? 2);
const NODES = 2;
const HELD_BYTES = 800_000_000;
/** The process that holds them is counted too. */
const PEAK_BYTES = HELD_BYTES + 100_000_000;
/** 85 % hold the tiny plan (151 MB), one of the two and a photo (504 MB); all three are more. */
const NODE_MEMORY_BYTES = 1_850_000_000;
/** Some 14 megapixels: more than a node takes beside one of the two. */
const PHOTO = { width: 4600, height: 3000 };

type Colour = readonly [red: number, green: number, blue: number];
const meanOf = ([red, green, blue]: Colour) => (red + green + blue) / 3;

/** Alphas tell which model made them. */
const MODELS = {
  tiny: { kind: 'paced', alphaOf: meanOf },
  red: { kind: 'red', alphaOf: ([red]: Colour) => red },
  steep: { kind: 'overshoot', alphaOf: (of: Colour) => Math.min(255, 3 * meanOf(of) - 255) },
} as const;

const A_PHOTO: Manner = { ...PLAIN, name: 'a photo' };

async function openWithModels(directory: string): Promise<Ground> {
  const measured = { peakBytes: PEAK_BYTES, loadedBytes: PEAK_BYTES, seconds: 1, provider: 'cpu' };
  for (let index = 0; index < NODES; index += 1) {
    const folders = {
      modelDir: path.join(directory, `node-${index}`),
      addedModelsDir: path.join(directory, 'models'),
    };
    for (const name of ['red', 'steep'] as const) {
      const options = { kind: MODELS[name].kind, heldBytes: HELD_BYTES };
      await addTinyModel(folders, name, { measured }, options);
    }
  }
  return await openOneMachine(directory);
}

async function pictureFor(index: number, manner: Manner) {
  const colour: Colour = [120 + ((index * 7) % 130), 110 + (index % 50), 150];
  const [r, g, b] = colour;
  const size = manner === A_PHOTO ? PHOTO : { width: 16 + (index % 97), height: 16 + (index % 89) };
  const file = await sharp({ create: { ...size, channels: 3, background: { r, g, b } } })
    .png()
    .toBuffer();
  const model = (manner.models?.[0] ?? 'tiny') as keyof typeof MODELS;
  const expected = MODELS[model].alphaOf(colour);
  return {
    file,
    requireCutOut: async (cutOut: Uint8Array) => {
      const { width, height, channels } = await sharp(cutOut).metadata();
      assert.deepEqual([width, height, channels], [size.width, size.height, 4]);
      const corner = sharp(cutOut).extract({ left: 0, top: 0, width: 1, height: 1 });
      const alpha = (await corner.raw().toBuffer()).readUInt8(3);
      assert.ok(Math.abs(alpha - expected) <= 2, `${alpha} for ${expected} by ${model}`);
    },
  };
}

describeStorm(
  ava.serial,
  'nodes with memory for one of two models',
  skipReason('mysql') || skipWithoutMemoryGroups(),
  () => ({
    fleet: {
      controlPlanes: 2,
      nodes: NODES,
      model: 'tiny',
      nodeMemoryBytes: NODE_MEMORY_BYTES,
      openGround: openWithModels,
      env: {
        MATTING_MODELS_OFFERED: 'tiny,red,steep',
        MATTING_SYNC_WAIT_MS: '3000',
        MATTING_MODEL_IDLE_MS: '3000',
      },
    },
    kills: {
      'control plane': KILLS_OF_EACH,
      node: 2 * KILLS_OF_EACH,
      engine: 2 * KILLS_OF_EACH,
    },
    // Between them models are loaded and unloaded.
    pauseMs: [1000, 5000],
    ownModels: ['tiny-paced'],
    manners: [
      PLAIN,
      byModel('red'),
      A_PHOTO,
      byModel('steep'),
      { ...byModel('modnet'), models: ['tiny'], refusal: /model must be one of tiny, red, steep/ },
    ],
    picture: pictureFor,
    hostileAccounts: 0,
  }),
);
