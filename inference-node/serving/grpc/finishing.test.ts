import { status } from '@grpc/grpc-js';
import { BACKGROUND_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  BackgroundPicture,
  Finishing,
  InputFormat,
  type MatteHeader,
  OutputFormat,
  ResultKind,
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
  type TestNodeOptions,
  untilNothingAdmitted,
} from '../test/test-node.ts';

const test = ava.serial;

const { OUTPUT_FORMAT_JPEG: JPEG, OUTPUT_FORMAT_ZIP: ZIP, OUTPUT_FORMAT_JXL: JXL } = OutputFormat;
const MASK = ResultKind.RESULT_KIND_MASK;
const EVERYTHING: TestNodeOptions = {
  capabilities: { outputFormats: ['png', 'webp', 'avif', 'jpeg', 'zip'] },
};

let node: TestNode;

test.beforeEach(async () => {
  node = await openTestNode(EVERYTHING);
});

test.afterEach.always(() => node.close());

async function reopen(options: TestNodeOptions): Promise<void> {
  await node.close();
  node = await openTestNode({ ...EVERYTHING, ...options });
}

const colour = (rgba: number) =>
  Finishing.create({ background: { $case: 'backgroundRgba', value: rgba } });
const behind = (fields: Partial<BackgroundPicture>) =>
  Finishing.create({
    background: {
      $case: 'backgroundPicture',
      value: BackgroundPicture.create({ contentLength: 4, ...fields }),
    },
  });
const plain = Finishing.create();
const sized = (width: number, height: number) => ({ width, height });
const margins = (px: number) => {
  const length = { length: { $case: 'px' as const, value: px } };
  const crop = { marginTop: length, marginRight: length, marginBottom: length, marginLeft: length };
  return Finishing.create({ crop });
};

async function sendImage(fields: Partial<MatteHeader>): Promise<MatteCaller> {
  const caller = new MatteCaller(node).send(header({ ...fields, ...sized(0, 0) }));
  await caller.until('admitted');
  caller.send(chunk('image')).call.end();
  return caller;
}

const bad: Readonly<Record<string, readonly Partial<MatteHeader>[]>> = {
  UNSUPPORTED_OUTPUT_FORMAT: [
    { outputFormat: JPEG, finishing: plain },
    { outputFormat: JPEG, finishing: colour(0xfffffffe) },
    { outputFormat: JPEG, resultKind: MASK, finishing: plain },
    { outputFormat: ZIP, resultKind: MASK, finishing: plain },
  ],
  INVALID_REQUEST: [
    { resultKind: MASK, finishing: colour(0xff) },
    { finishing: Finishing.create({ scalePercent: 9 }) },
    { finishing: behind({ contentLength: 0 }) },
    { finishing: behind({ width: 8 }) },
    { finishing: behind({ sha256: Buffer.alloc(5) }) },
  ],
  IMAGE_TOO_LARGE: [{ finishing: behind({ contentLength: BACKGROUND_BYTES_MAX + 1 }) }],
  IMAGE_RESOLUTION_TOO_LARGE: [{ finishing: behind({ width: 6500, height: 4000 }) }],
  UNSUPPORTED_IMAGE_FORMAT: [{ finishing: behind({ inputFormat: 99 as InputFormat }) }],
  NODE_INCAPABLE: [{ finishing: behind({ inputFormat: InputFormat.INPUT_FORMAT_JXL }) }],
  INVALID_PARAMETER: [
    // Each makes 100 megapixels.
    { ...sized(1, 1), finishing: Finishing.create({ outputHeight: 10_000 }) },
    { ...sized(24, 18), finishing: margins(10_000) },
  ],
};

test('a header with finishing › that cannot be met is refused by its code, before any byte arrives', async t => {
  for (const [code, headers] of Object.entries(bad)) {
    for (const [index, fields] of headers.entries()) {
      const caller = new MatteCaller(node).send(header(fields));
      const expected = {
        code,
        ...(code === 'INVALID_PARAMETER' && { status: status.INVALID_ARGUMENT }),
        ...(code.endsWith('TOO_LARGE') && { status: status.OUT_OF_RANGE, message: /background/ }),
      };
      await t.notThrowsAsync(caller.refused(expected), `${code} ${index}`);
      t.deepEqual(caller.messages, [], `${code} ${index}`);
      t.is(node.admission.snapshot().images, 0, `${code} ${index}`);
    }
  }
});

test('a header with finishing › that only the picture shows to be too large ends before a model runs', async t => {
  const wide = Finishing.create({ outputWidth: 9000 });
  await (await sendImage({ finishing: wide })).refused({
    code: 'INVALID_PARAMETER',
    status: status.INVALID_ARGUMENT,
    message: /^output_width makes a frame of 60750000 pixels/,
  });
  t.deepEqual([node.pictures.decoded.length, node.engines.runs.length], [1, 0]);
  const bounded = Finishing.create({ outputWidth: 9000, sizeMaxMegapixels: 50 });
  t.is(await (await sendImage({ finishing: bounded })).ended, undefined);
});

test('a header with finishing › of a JPEG XL that is larger than the node writes ends before a model runs', async t => {
  await reopen({
    capabilities: { outputFormats: ['jxl'], inputFormats: ['png'], jxlPixelsMax: 40e6 },
  });
  const fields = { finishing: Finishing.create({ outputWidth: 8000 }), outputFormat: JXL };
  const known = new MatteCaller(node).send(header({ ...fields, ...sized(8, 6) }));
  await known.refused({ code: 'NODE_INCAPABLE' });
  t.deepEqual(known.messages, []);
  await (await sendImage(fields)).refused({ code: 'NODE_INCAPABLE' });
  t.deepEqual([node.pictures.decoded.length, node.engines.runs.length], [1, 0]);
});

test('a header with finishing › is admitted by the memory of its result and its background', async t => {
  await reopen({ limits: { megapixelsMax: 6, megapixelsAloneMax: 6 } });
  const small = await new MatteCaller(node).announce({ finishing: plain });
  small.call.cancel();
  await untilNothingAdmitted(node);
  for (const finishing of [
    Finishing.create({ outputWidth: 7000, outputHeight: 7000 }),
    behind({ width: 5000, height: 5000 }),
  ]) {
    const caller = new MatteCaller(node).send(header({ finishing }));
    await t.notThrowsAsync(caller.refused({ code: 'NODE_INCAPABLE' }));
  }
});

const image = 'image';
const picture = 'back';

async function sendBoth(chunks: readonly string[], fields: Partial<BackgroundPicture> = {}) {
  const caller = new MatteCaller(node);
  caller.send(header({ sha256: sha256(image), finishing: behind(fields) }));
  await caller.until('admitted');
  caller.send(...chunks.map(chunk)).call.end();
  return caller;
}

test('the bytes of a background › follow those of the image, however they are cut', async t => {
  const declared = { width: 3, height: 2 };
  const cuts = [[image, picture], [image + picture], ['ima', 'geba', 'ck'], [...'imageback']];
  for (const [index, chunks] of cuts.entries()) {
    const caller = await sendBoth(chunks, { sha256: sha256(picture), ...declared });
    t.is(await caller.ended, undefined);
    const request = at(node.pictures.decoded, index);
    t.is(request.file.toString(), image, chunks.join(' '));
    t.is(request.background?.file.toString(), picture, chunks.join(' '));
    t.deepEqual(request.background?.declared, declared);
    t.deepEqual(at(node.pictures.finished, index).finishing, { background: { kind: 'picture' } });
  }
});

test('the bytes of a background › are counted, and held against their own digest', async t => {
  const missing = await sendBoth([image, 'bac']);
  await missing.refused({ message: /8 of 9 bytes/ });
  const more = await sendBoth([image, picture, '!']);
  await more.refused({ code: 'INVALID_REQUEST' });
  const wrong = await sendBoth([image, 'hack'], { sha256: sha256(picture) });
  await wrong.refused({ message: /background.*sha256/ });
  const wrongImage = await sendBoth(['imago', picture], { sha256: sha256(picture) });
  await wrongImage.refused({ message: /^The bytes of the image.*sha256/ });
  t.is(node.pictures.decoded.length, 0);
  await untilNothingAdmitted(node);
  const held = await new MatteCaller(node).announce({ finishing: behind({}) });
  t.is(node.admission.snapshot().fileBytes, 9);
  held.call.cancel();
  await untilNothingAdmitted(node);
});

const subject = {
  inputBox: { left: 1, top: 2, width: 3, height: 4 },
  resultBox: { left: 0, top: 0, width: 3, height: 4 },
  share: 0.25,
  cutOff: true,
  unsure: false,
};

test('the answer › repeats the finishing, byte for byte, and says what it took', async t => {
  node.pictures.subject = subject;
  const finishing = Finishing.create({
    crop: { marginTop: { length: { $case: 'percent', value: 12.5 } } },
    scalePercent: 85,
    position: { position: { $case: 'percent', value: { x: 50, y: 100 } } },
    outputWidth: 1000,
    background: { $case: 'backgroundRgba', value: 0xffffffff },
  });
  const caller = await new MatteCaller(node).sendFile('image', { finishing, outputFormat: JPEG });
  const done = await caller.until('done');
  t.is(done.timings?.finishMs, 7);
  const { header: result } = caller.result();
  t.deepEqual(
    Finishing.encode(result?.finishing ?? plain).finish(),
    Finishing.encode(finishing).finish(),
  );
  t.is(result?.contentType, 'image/jpeg');
  t.deepEqual(result?.subject, subject);
});

test('the answer › without requests says what was seen, and repeats nothing but an empty finishing', async t => {
  const caller = await new MatteCaller(node).sendFile('image');
  const done = await caller.until('done');
  t.is(done.timings?.finishMs, 0);
  const { header: result } = caller.result();
  t.deepEqual([result?.inputWidth, result?.inputHeight], [8, 6]);
  t.deepEqual([result?.finishing, result?.subject], [undefined, undefined]);
  const empty = { finishing: plain, outputFormat: ZIP };
  const { header: zip } = (await new MatteCaller(node).serve('image', empty)).result();
  t.deepEqual([zip?.finishing, zip?.contentType], [plain, 'application/zip']);
});
