import assert from 'node:assert/strict';
import { at as elementAt } from '@matting/test-support/at.ts';
import { Random } from '@matting/test-support/random.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import test from 'ava';
import { drawCheckPicture } from '../../../../prepared/answer-check.ts';
import { encode, hasHeifEnc } from '../../../../test/picture/codecs/heic-files.ts';
import { type Pixels, paint } from '../../../../test/pictures.ts';
import { type CodedPicture, findDamage } from './coded-picture.ts';

const untested = isNotTested(!hasHeifEnc && 'HEIC: heif-enc (libheif-examples) is not installed');

const CONFIGURATION = [
  'AQNwAAAAAAAAAAAAHvAA/P34+AAADwMgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQCEAAQArQgEBA3AAAAMA',
  'kAAAAwAAAwAeoDCBJZbqSSmubgQEDAgAAAMACAAAAwAIQCIAAQAHRAHBcrAiQA==',
];
const DATA = [
  'AAAC1igBrx+Aa4FuB74RTpMoE9BTAHfKMMdeLpBzj5opd1YaindDSPRB9gmHSDBK3JH+DECBEgmAUwLD8x/TB6Ep',
  'GWdByMCeN8IMB+PItCyMoZBMBMAnvGvethJ/ijQ2rkAs/sE/1jEgrimM3QEykqtqYDhAo+654LFDiKf/RSnFn3rc',
  'L6SbV1hx90OO7WupQ5cklfPtiDtNKbgJdmXGG4JE7KZgKamnidLHoVItEF1naFyDw03LN6QVi5CjlJPDffKsqZiT',
  'CNqUqMlyk8AKDOS7Wsdupq2yPwAGYiXZJJxnuW+zJSNKORoZOCorODCRzduGmjzGNUitM42YegLdOmK4Yw+EglMp',
  'TykpVK4Reka1e6yHr0+1B1GjnKtb68gMWdmJH8RhkPpnICoUKXZXk6C6p3HErmWbZfzCMPDBVBVYtrnjMMaBx2rX',
  'LeRrdc4KF4ehqsWRUy8G1jkkfB1TKmCLDiQdjLSpMi8cm9/ESR3cdeHaPH7Ge1TryZJ8kmsC84Yf+z/1RNzCc9ER',
  'HzD7L4h4VCxUHEV9TYnVs331BM3G2ZSeA8jeVJJVGNsVoFggy2QFcpOt+Kw0j3VD0yUodXmlkximmIh9hdVIHjqb',
  '7ciK2iwLyAeTeDkhoSAhf1ia8xQOl14B4ANxabFAdx9Difqp1kR6EzLWRkoWyMvOOgrZQpcBwXbCQrTGS6IDDyaU',
  'wMFMS5I++X0FKQWeGFBRDA5po9aLa4xaPosJ/nRt6NCuCTyTtkSgoiMcBkaygN5C/NHZ+IfpDa7YPx1y1DiX7zQK',
  'w5Unz2j/vTNkYA/BZzQL547d7+NasCXN1x/UBaNNiB/uTPSYnv8CwgDU/tSwPop0vXkfnL0Umnm6eAwqRt9eKkUF',
  'zT8Hr/06GpczixpMlCUAHPBlTf8wERcrQA8kCiTEOfYQO3QNS0FhOaSyGkdfY6hjRLzFW+2MDIdBU6hQ+7botf9y',
  'WiCsgA==',
];

/** 96x72 pixels in 4:2:0 by x265 3.5, in rows that can be read by themselves. */
const WHOLE: CodedPicture = {
  configuration: Buffer.from(CONFIGURATION.join(''), 'base64'),
  data: Buffer.from(DATA.join(''), 'base64'),
  size: { width: 96, height: 72 },
};

const withData = (data: Buffer): CodedPicture => ({ ...WHOLE, data });
const whole = Buffer.from(WHOLE.data);
/** Length, header and the slice's own header. */
const CODES_AT = 24;

test('a whole picture has no damage, with zeros behind its slice too', t => {
  t.is(findDamage(WHOLE), undefined);
  const padded = Buffer.concat([whole, Buffer.from([0, 0, 3, 0, 0, 3])]);
  padded.writeUInt32BE(padded.length - 4);
  t.is(findDamage(withData(padded)), undefined);
});

test('a picture that is cut short is damaged, wherever it ends', t => {
  for (let length = 0; length < whole.length; length++) {
    const cut = Buffer.from(whole.subarray(0, length));
    t.truthy(findDamage(withData(cut)), `cut at ${length}`);
    if (length < 8) continue;
    cut.writeUInt32BE(length - 4);
    t.truthy(findDamage(withData(cut)), `ends at ${length}`);
  }
});

test('nearly every changed byte is found, and every rest that is lost', t => {
  let found = 0;
  for (let at = CODES_AT; at < whole.length; at++) {
    const spoilt = Buffer.from(whole);
    spoilt[at] = elementAt(spoilt, at) ^ 0x55;
    if (findDamage(withData(spoilt)) !== undefined) found += 1;
  }
  t.true(found >= 0.97 * (whole.length - CODES_AT), `${found} of ${whole.length - CODES_AT}`);
  const random = new Random(3);
  for (const share of [0.05, 0.2, 0.5, 0.95]) {
    for (const fill of [() => 0, () => 255, () => random.below(256)]) {
      const spoilt = Buffer.from(whole);
      for (let at = Math.floor(whole.length * (1 - share)); at < whole.length; at++) {
        spoilt[at] = fill();
      }
      t.truthy(findDamage(withData(spoilt)), `${share} of ${fill}`);
    }
  }
});

test('parameters that are missing or cut are damage, a tool that is not followed is none', t => {
  t.truthy(findDamage({ ...WHOLE, configuration: Buffer.alloc(0) }));
  const cut = WHOLE.configuration.subarray(0, WHOLE.configuration.length - 3);
  t.truthy(findDamage({ ...WHOLE, configuration: cut }));
  // A decoder compares sizes.
  t.is(findDamage({ ...WHOLE, size: { width: 8, height: 8 } }), undefined);
  // A slice of a picture that refers to another one.
  const other = Buffer.from(whole);
  other[4] = 1 << 1;
  t.is(findDamage(withData(other)), undefined);
});

test('no configuration and no data of noise ends in another error, or in none', t => {
  const random = new Random(7);
  for (let round = 0; round < 3000; round++) {
    const configuration = Buffer.from(WHOLE.configuration);
    const data = Buffer.from(whole);
    const into = round % 2 === 0 ? configuration : data;
    for (let i = 0; i <= round % 5; i++) into[random.below(into.length)] = random.below(256);
    t.notThrows(() => findDamage({ ...WHOLE, configuration, data }));
  }
});

/** The options that x265 takes beside the chroma and the depth. */
const CODINGS = [
  [],
  ['ctu=16', 'sao=0'],
  ['ctu=32', 'min-cu-size=16', 'tskip=1'],
  ['wpp=0', 'tu-intra-depth=4', 'max-tu-size=8'],
  ['signhide=0', 'rd=5'],
  ['cu-lossless=1', 'qg-size=8'],
  ['lossless=1', 'scaling-list=default'],
  ['aq-mode=0', 'constrained-intra=1', 'deblock=0'],
];

const PICTURES: readonly Pixels[] = [
  { data: drawCheckPicture(136, 100), width: 136, height: 100, channels: 3 },
  paint(71, 131, 3, (x, y) => Array(3).fill((Math.imul(x * 31 + y * 17, 0x9e3779b1) >>> 24) & 255)),
  paint(96, 96, 3, () => [0, 136, 0]),
];

for (const chroma of ['420', '422', '444'] as const) {
  test.skipIf(untested)(
    `every way of x265 to code ${chroma} is whole, also in plain green`,
    async t => {
      for (const [i, coding] of CODINGS.entries()) {
        const bits = i % 2 === 0 ? 8 : 10;
        const quality = [15, 60, 95][i % 3] ?? 60;
        for (const one of await encode(PICTURES, { chroma, bits, quality, coding })) {
          const configuration = one.hvcC.subarray(8);
          const size = { width: one.width, height: one.height };
          const found = findDamage({ configuration, data: one.data, size });
          t.is(found, undefined, `${coding} ${one.width}x${one.height} ${bits} ${quality}`);
          const spoilt = Buffer.from(one.data);
          spoilt.fill(0, Math.floor(spoilt.length / 2));
          t.truthy(findDamage({ configuration, data: spoilt, size }), `${coding} half zeros`);
        }
      }
    },
  );
}

test.skipIf(untested)('each of several slices is read, and none may be missing', async t => {
  const picture = drawCheckPicture(330, 250);
  const pixels = { data: picture, width: 330, height: 250, channels: 3 } as const;
  const [coded] = await encode([pixels], { chroma: '420', coding: ['slices=3', 'info=0'] });
  assert.ok(coded);
  const size = { width: coded.width, height: coded.height };
  const configuration = coded.hvcC.subarray(8);
  const units: Buffer[] = [];
  for (let at = 0; at < coded.data.length; at += 4 + coded.data.readUInt32BE(at)) {
    units.push(coded.data.subarray(at, at + 4 + coded.data.readUInt32BE(at)));
  }
  t.is(units.length, 3);
  t.is(findDamage({ configuration, data: coded.data, size }), undefined);
  for (const missing of units) {
    const data = Buffer.concat(units.filter(unit => unit !== missing));
    t.truthy(findDamage({ configuration, data, size }));
  }
});
