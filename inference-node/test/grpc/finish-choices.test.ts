/** What a caller chooses of refinement and foreground estimation is what a picture worker does. */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import ava from 'ava';
import { pino } from 'pino';
import sharp from 'sharp';
import { type MatteHeader, ResultKind, Switch } from '#gen/matting/v1/matte_service.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { writeTinyModel } from '../../../test/support/tiny-model.ts';
import { openEnginePool } from '../../src/engine/pool/open-engine-pool.ts';
import { openPicturePool } from '../../src/picture/pool/open-picture-pool.ts';
import { RECOLOURED_MARK, REFINED_MARK } from './marked-finish.ts';
import { MatteCaller, openShell } from './test-node.ts';

const test = ava.serial;

const SIDE = 48;
/** What the tiny graph's matte is of a picture this bright. */
const BRIGHTNESS = 180;
const HOOK = pathToFileURL(path.join(import.meta.dirname, 'marked-finish-hook.ts')).href;

const CUTOUT = ResultKind.RESULT_KIND_CUTOUT;
const MASK = ResultKind.RESULT_KIND_MASK;
const { SWITCH_ON, SWITCH_OFF } = Switch;

const log = pino({ level: 'silent' });
const childEnv = { PATH: process.env.PATH ?? '' };

const directory = await temporaryFolder({ teardown: test.after.always });
let engines: ReturnType<typeof openEnginePool>;
let pictures: Awaited<ReturnType<typeof openPicturePool>>;
let node: Awaited<ReturnType<typeof openShell>>;
let picture: Buffer;

test.before(async () => {
  const background = { r: BRIGHTNESS, g: BRIGHTNESS, b: BRIGHTNESS };
  const create = { width: SIDE, height: SIDE, channels: 3, background } as const;
  picture = await sharp({ create }).png().toBuffer();
  const model = await writeTinyModel(directory, { kind: 'mean' });
  engines = openEnginePool({ model, engines: 1, threadsPerEngine: 1, childEnv, log });
  const marked = { ...childEnv, NODE_OPTIONS: `--import=${HOOK}` };
  pictures = await openPicturePool({ workers: 1, childEnv: marked, log });
  await engines.ready();
  node = await openShell({ model, engines, role: 'subject' }, pictures);
});

test.after.always(async () => {
  await node?.close();
  await engines?.close(0);
  await pictures?.close(0);
});

/** Alpha in the middle of the result. */
async function alphaOf(fields: Partial<MatteHeader>): Promise<number> {
  const header = { width: SIDE, height: SIDE, ...fields };
  const caller = await new MatteCaller(node).serve(picture, header);
  const { data, info } = await sharp(caller.result().file)
    .raw()
    .toBuffer({ resolveWithObject: true });
  return data.readUInt8((SIDE * (SIDE / 2) + SIDE / 2) * info.channels + info.channels - 1);
}

test('is refinement, then foreground estimation, where the caller asks for both', async t => {
  const both = { refinement: SWITCH_ON, foregroundEstimation: SWITCH_ON };
  t.is(await alphaOf({ ...both, resultKind: CUTOUT }), RECOLOURED_MARK);
});

test('is no foreground estimation for a mask, whatever the caller asks for', async t => {
  const estimated = { resultKind: MASK, foregroundEstimation: SWITCH_ON };
  t.is(await alphaOf({ ...estimated, refinement: SWITCH_ON }), REFINED_MARK);
  const off = await alphaOf({ ...estimated, refinement: SWITCH_OFF });
  t.true(Math.abs(off - BRIGHTNESS) <= 2, `alpha ${off}`);
  t.is(await alphaOf({ resultKind: MASK }), REFINED_MARK);
});

test('is neither where the caller switches both off, each for itself', async t => {
  const off = { refinement: SWITCH_OFF, foregroundEstimation: SWITCH_OFF };
  const plain = await alphaOf({ ...off, resultKind: CUTOUT });
  t.true(Math.abs(plain - BRIGHTNESS) <= 2, `alpha ${plain}`);
  t.is(await alphaOf({ ...off, refinement: SWITCH_ON }), REFINED_MARK);
  t.is(await alphaOf({ ...off, foregroundEstimation: SWITCH_ON }), RECOLOURED_MARK);
});
