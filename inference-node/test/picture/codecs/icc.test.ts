import assert from 'node:assert/strict';
import test from 'ava';
import sharp from 'sharp';
import { isSrgbProfile } from '../../../src/picture/codecs/colour/icc.ts';
import { asSharp, loadVips, paintSlope, writeJxl } from '../pictures.ts';

async function profileNamed(name: string): Promise<Buffer> {
  const file = await asSharp(paintSlope(8, 8)).withIccProfile(name).jpeg().toBuffer();
  const { icc } = await sharp(file).metadata();
  assert.ok(icc);
  return icc;
}

test('sRGB is recognised, others are not', async t => {
  t.true(isSrgbProfile(await profileNamed('srgb')));
  t.false(isSrgbProfile(await profileNamed('p3')));
  t.false(isSrgbProfile(await profileNamed('cmyk')));
});

test('the profile that libjxl makes for sRGB is recognised, that for grey is not', async t => {
  const { Image } = await loadVips();
  const colour = Image.newFromBuffer(await writeJxl(paintSlope(8, 8)), '');
  t.true(isSrgbProfile(colour.getBlob('icc-profile-data')));
  const plane = { data: Buffer.alloc(64, 9), width: 8, height: 8, channels: 1 } as const;
  const grey = Image.newFromBuffer(await writeJxl(plane), '');
  t.false(isSrgbProfile(grey.getBlob('icc-profile-data')));
});

test('a damaged profile is no sRGB and no error', async t => {
  const profile = await profileNamed('srgb');
  for (let length = 0; length < profile.length; length += 7) {
    t.false(isSrgbProfile(profile.subarray(0, length)));
  }
  for (let at = 0; at < profile.length; at++) {
    for (const value of [0x00, 0x7f, 0xff]) {
      const damaged = Buffer.from(profile);
      damaged[at] = value;
      isSrgbProfile(damaged);
    }
  }
});

test('sRGB primaries with another curve are not sRGB', async t => {
  const profile = Buffer.from(await profileNamed('srgb'));
  const tags = Array.from({ length: profile.readUInt32BE(128) }, (_, i) => 132 + 12 * i);
  const curve = tags.find(at => profile.toString('latin1', at, at + 4) === 'gTRC');
  assert.ok(curve);
  const offset = profile.readUInt32BE(curve + 4);
  t.is(profile.toString('latin1', offset, offset + 4), 'para');
  profile.writeInt32BE(Math.round(1.8 * 65536), offset + 12);
  t.false(isSrgbProfile(profile));
});
