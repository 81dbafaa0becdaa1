import assert from 'node:assert/strict';
import { test } from 'node:test';
import sharp from 'sharp';
import { isSrgbProfile } from '../../../src/picture/codecs/colour/icc.ts';
import { asSharp, loadVips, paintSlope, writeJxl } from '../pictures.ts';

async function profileNamed(name: string): Promise<Buffer> {
  const file = await asSharp(paintSlope(8, 8)).withIccProfile(name).jpeg().toBuffer();
  const { icc } = await sharp(file).metadata();
  assert.ok(icc);
  return icc;
}

test('sRGB is recognised, others are not', async () => {
  assert.equal(isSrgbProfile(await profileNamed('srgb')), true);
  assert.equal(isSrgbProfile(await profileNamed('p3')), false);
  assert.equal(isSrgbProfile(await profileNamed('cmyk')), false);
});

test('the profile that libjxl makes for sRGB is recognised, that for grey is not', async () => {
  const { Image } = await loadVips();
  const colour = Image.newFromBuffer(await writeJxl(paintSlope(8, 8)), '');
  assert.equal(isSrgbProfile(colour.getBlob('icc-profile-data')), true);
  const plane = { data: Buffer.alloc(64, 9), width: 8, height: 8, channels: 1 } as const;
  const grey = Image.newFromBuffer(await writeJxl(plane), '');
  assert.equal(isSrgbProfile(grey.getBlob('icc-profile-data')), false);
});

test('a damaged profile is no sRGB and no error', async () => {
  const profile = await profileNamed('srgb');
  for (let length = 0; length < profile.length; length += 7) {
    assert.equal(isSrgbProfile(profile.subarray(0, length)), false);
  }
  for (let at = 0; at < profile.length; at++) {
    for (const value of [0x00, 0x7f, 0xff]) {
      const damaged = Buffer.from(profile);
      damaged[at] = value;
      isSrgbProfile(damaged);
    }
  }
});

test('sRGB primaries with another curve are not sRGB', async () => {
  const profile = Buffer.from(await profileNamed('srgb'));
  const tags = Array.from({ length: profile.readUInt32BE(128) }, (_, i) => 132 + 12 * i);
  const curve = tags.find(at => profile.toString('latin1', at, at + 4) === 'gTRC');
  assert.ok(curve);
  const offset = profile.readUInt32BE(curve + 4);
  assert.equal(profile.toString('latin1', offset, offset + 4), 'para');
  profile.writeInt32BE(Math.round(1.8 * 65536), offset + 12);
  assert.equal(isSrgbProfile(profile), false);
});
