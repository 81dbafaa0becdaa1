import { status } from '@grpc/grpc-js';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { HINT_POINTS_MAX, HINT_SHAPES_MAX } from '@matting/proto/contract/hints.ts';
import { MATTE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  BackgroundPicture,
  Finishing,
  Hints,
  InputFormat,
  MatteFile,
  type MatteHeader,
  Region,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { at } from '@matting/test-support/at.ts';
import ava from 'ava';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  sha256,
  type TestNode,
} from '../test/test-node.ts';

const test = ava.serial;

let node: TestNode;

test.beforeEach(async () => {
  node = await openTestNode();
});

test.afterEach.always(() => node.close());

const px = (value: number) => ({ length: { $case: 'px' as const, value } });
const boxed = (left: number, top: number, right: number, bottom: number) =>
  Region.create({ left: px(left), top: px(top), right: px(right), bottom: px(bottom) });
const line = (...points: number[]) => ({
  shape: { $case: 'line' as const, value: { points, radius: 2 } },
});
const drawn = (fields: Partial<BackgroundPicture>) =>
  Hints.create({ picture: BackgroundPicture.create({ contentLength: 5, ...fields }) });
const given = (fields: Partial<MatteFile> = {}) =>
  MatteFile.create({ contentLength: 5, ...fields });

test('hints › with as many shapes and points as a request may have are taken', async t => {
  const points = Array.from({ length: (2 * HINT_POINTS_MAX) / HINT_SHAPES_MAX }, () => 9.999);
  const keep = Array.from({ length: HINT_SHAPES_MAX }, () => line(...points));
  const caller = await new MatteCaller(node).announce({ hints: Hints.create({ keep }) });
  t.truthy(caller);
  caller.call.cancel();
});

const bad: Readonly<Record<string, readonly Partial<MatteHeader>[]>> = {
  INVALID_PARAMETER: [
    { hints: Hints.create({ keep: Array.from({ length: 65 }, () => line(1, 1)) }) },
    { hints: Hints.create({ erase: [line(Number.NaN, 1)] }) },
    { hints: drawn({ inputFormat: InputFormat.INPUT_FORMAT_JPEG }) },
  ],
  INVALID_REQUEST: [
    { hints: Hints.create({ ...drawn({}), keep: [line(1, 1)] }) },
    { hints: drawn({ contentLength: 0 }) },
    { givenMatte: given({ contentLength: 0 }) },
    { givenMatte: given({ sha256: Buffer.alloc(5) }) },
  ],
  IMAGE_TOO_LARGE: [{ givenMatte: given({ contentLength: MATTE_BYTES_MAX + 1 }) }],
  IMAGE_RESOLUTION_TOO_LARGE: [{ hints: drawn({ width: 6500, height: 4000 }) }],
};

test('a header with hints that cannot be met is refused, before any byte arrives', async t => {
  for (const [code, headers] of Object.entries(bad)) {
    for (const [index, fields] of headers.entries()) {
      const caller = new MatteCaller(node).send(header(fields));
      await t.notThrowsAsync(caller.refused({ code }), `${code} ${index}`);
      t.deepEqual(caller.messages, [], `${code} ${index}`);
      t.is(node.admission.snapshot().images, 0, `${code} ${index}`);
    }
  }
});

async function send(fields: Partial<MatteHeader>, ...chunks: string[]): Promise<MatteCaller> {
  const caller = new MatteCaller(node).send(header({ ...fields, width: 0, height: 0 }));
  await caller.until('admitted');
  caller.send(...chunks.map(chunk)).call.end();
  return caller;
}

test('hints outside of the picture or the box end before a model runs', async t => {
  // The picture has 8x6 pixels.
  for (const [hints, message] of [
    [Hints.create({ keep: [line(2, 2, 20, 2)] }), /^keep must lie inside the image/],
    [Hints.create({ erase: [line(2, 9)] }), /^erase must lie inside the image/],
    [Hints.create({ subjectBox: boxed(9, 0, 12, 6) }), /^subject_box is empty/],
    [Hints.create({ subjectBox: boxed(3, 3, 3, 6) }), /^subject_box is empty/],
    [Hints.create({ subjectBox: boxed(0, 0, 3, 3), keep: [line(6, 2)] }), /inside subject_box/],
  ] as const) {
    const expected = { code: 'INVALID_PARAMETER', status: status.INVALID_ARGUMENT, message };
    await t.notThrowsAsync((await send({ hints }, 'image')).refused(expected), String(message));
  }
  t.is(node.engines.runs.length, 0);
});

test('models look at the box alone, with a margin', async t => {
  const hints = Hints.create({ subjectBox: boxed(0, 1, 4, 4), keep: [line(1, 2)] });
  const caller = await send({ hints }, 'image');
  t.is(await caller.ended, undefined);
  t.true(caller.result().header?.hints);
  t.deepEqual(at(node.pictures.decoded, 0).modelInputs, []);
  const part = { left: 0, top: 0, width: 5, height: 5 };
  t.deepEqual(node.pictures.parts, [part]);
  t.deepEqual(at(node.pictures.finished, 0).mattes[0]?.part, part);
  t.is(at(node.pictures.finished, 0).hints?.keep?.length, 1);
});

test('the files of a call follow each other, and each is held against its digest', async t => {
  const background = BackgroundPicture.create({ contentLength: 4, sha256: sha256('back') });
  const fields = {
    finishing: Finishing.create({ background: { $case: 'backgroundPicture', value: background } }),
    hints: drawn({ sha256: sha256('hints') }),
    givenMatte: given({ sha256: sha256('matte') }),
  };
  const whole = await send(fields, 'imagebackhintsma', 'tte');
  t.is(await whole.ended, undefined);
  const { file, background: behind, hints } = at(node.pictures.decoded, 0);
  t.deepEqual([file, behind?.file, hints?.file].map(String), ['image', 'back', 'hints']);
  t.is(String(at(node.pictures.finished, 0).givenMatte), 'matte');
  await (await send(fields, 'imagebackhonts', 'matte')).refused({ message: /hints.*sha256/ });
  await (await send(fields, 'imagebackhints', 'motte')).refused({ message: /matte.*sha256/ });
  await (await send(fields, 'imagebackhints')).refused({ message: /14 of 19 bytes/ });
});

test('a given matte takes no engine, and names no model', async t => {
  const caller = await send({ givenMatte: given() }, 'image', 'matte');
  t.is(await caller.ended, undefined);
  t.is(node.engines.runs.length, 0);
  const { mattes, givenMatte } = at(node.pictures.finished, 0);
  t.deepEqual([mattes.length, String(givenMatte)], [0, 'matte']);
  const { header: result } = caller.result();
  t.deepEqual([result?.plan, result?.modelRuns, result?.hints], ['', [], false]);
});

const CROPS = [
  { left: 1, top: 0, width: 4, height: 4 },
  { left: 0, top: 0, width: 8, height: 6 },
];

test('the first model looks at the crops that hints want, and its time has a stage of its own', async t => {
  node.pictures.crops = CROPS;
  const caller = await send({ hints: Hints.create({ keep: [line(2, 2)] }) }, 'image');
  t.is(await caller.ended, undefined);
  t.is(node.engines.runs.length, 3);
  t.deepEqual(node.pictures.parts, CROPS);
  t.is(node.pictures.cropMattes.length, 2);
  const { timings } = await caller.until('done');
  t.deepEqual([timings?.inferMs, timings?.cropRunMs], [2, 4]);
  node.pictures.parts.length = 0;
  const boxed = await send({ hints: Hints.create({ subjectBox: undefined }) }, 'image');
  t.is(await boxed.ended, undefined);
  t.deepEqual(node.pictures.parts, [], 'there are no shapes');
});

test('with a given matte, the model that the header names looks at crops, and none else', async t => {
  node.pictures.crops = CROPS;
  const fields = { givenMatte: given(), hints: Hints.create({ keep: [line(2, 2)] }) };
  await (await send(fields, 'image', 'matte')).ended;
  t.is(node.engines.runs.length, 0);
  const { plan } = (await new MatteCaller(node).serve('image')).result().header ?? {};
  const runs = node.engines.runs.length;
  const caller = await send({ ...fields, plan: plan! }, 'image', 'matte');
  t.is(await caller.ended, undefined);
  t.is(node.engines.runs.length - runs, 2);
  t.is(String(at(node.pictures.finished.slice(-1), 0).givenMatte), 'matte');
  t.is((await caller.until('done')).timings?.cropRunMs, 4);
});

test('colours decide where the engines are lost, and the result says what is missing', async t => {
  node.pictures.crops = CROPS;
  const fields = { givenMatte: given(), hints: Hints.create({ keep: [line(2, 2)] }) };
  const { plan } = (await new MatteCaller(node).serve('image')).result().header ?? {};
  node.engines.gates.failOnce('infer', new ContractError('ENGINE_LOST', 'gone'));
  const caller = await send({ ...fields, plan: plan! }, 'image', 'matte');
  t.is(await caller.ended, undefined);
  t.is((await caller.until('done')).timings?.cropRunMs, 0);
  t.deepEqual(
    caller.result().header?.runsMissing.map(({ role }) => role),
    ['subject'],
  );
});

test('a wanted matte comes before the result, in chunks of the bound', async t => {
  const caller = await new MatteCaller(node).sendFile('image', { matte: true });
  await caller.until('done');
  const cases = caller.messages.map(message => message.message?.$case);
  t.is(cases.indexOf('matteChunk'), cases.indexOf('resultHeader') + 1);
  t.true(cases.lastIndexOf('matteChunk') < cases.indexOf('chunk'));
  const chunks = caller.messages.flatMap(({ message }) =>
    message?.$case === 'matteChunk' ? [message.value.data.length] : [],
  );
  t.deepEqual(chunks, [262_144, 37_856]);
  t.is(caller.result().header?.matteBytes, 300_000);
  const plain = (await new MatteCaller(node).serve('image')).result();
  t.is(plain.header?.matteBytes, 0);
});
