import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ConfigError } from '@matting/program/config-error.ts';
import { readEnvironment } from '@matting/program/env.ts';
import ava from 'ava';
import { readPortalSettings } from '../settings.ts';
import { openTestApp } from '../test/portal-app.ts';
import { type BrandSettings, openBrand } from './brand.ts';

const test = ava.serial;

const SVG = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>x</script></svg>';
const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');

const folder = mkdtempSync(path.join(tmpdir(), 'matting-brand-'));
test.after.always(() => rmSync(folder, { recursive: true }));

function fileOf(name: string, bytes: string | Buffer): string {
  const file = path.join(folder, name);
  writeFileSync(file, bytes);
  return file;
}

const brandOf = (settings: Partial<BrandSettings>) =>
  openBrand({ name: undefined, colour: undefined, logoFile: undefined, ...settings });

const settingsOf = (env: Record<string, string>) =>
  readEnvironment(env, reader => readPortalSettings(reader, 'https://matting.example').brand);

test('the brand › is read from its settings, and refused where it is none', t => {
  const env = { MATTING_BRAND_NAME: '山 & Sons', MATTING_BRAND_COLOUR: '#0A7d5c' };
  t.deepEqual(settingsOf(env), { name: '山 & Sons', colour: '#0A7d5c', logoFile: undefined });
  for (const [variable, value] of [
    ['MATTING_BRAND_NAME', 'a\nBcc: b@shop.example'],
    ['MATTING_BRAND_NAME', ' a'],
    ['MATTING_BRAND_NAME', 'a'.repeat(41)],
    ['MATTING_BRAND_COLOUR', 'red'],
    ['MATTING_BRAND_COLOUR', '#fff;}body{display:none'],
  ] as const) {
    const error = t.throws(() => settingsOf({ [variable]: value }), { instanceOf: ConfigError });
    t.true(error?.message.includes(variable));
  }
});

test('the brand › has a logo that is a small SVG or PNG', t => {
  t.is(brandOf({ logoFile: fileOf('a', SVG) }).logo?.type, 'image/svg+xml');
  t.is(brandOf({ logoFile: fileOf('b', PNG) }).logo?.type, 'image/png');
  for (const [file, why] of [
    [path.join(folder, 'none'), /can be read \(ENOENT: /],
    [fileOf('page', '<html><svg></svg></html>'), /SVG or PNG/],
    [fileOf('large', Buffer.concat([PNG, Buffer.alloc(64 * 1024)])), /at most 64 KiB/],
  ] as const) {
    t.throws(() => brandOf({ logoFile: file }), { instanceOf: ConfigError, message: why });
  }
});

const GROUNDS = [
  ['#f7f7f9', '#ffffff', '#f1f2f5'],
  ['#0e0f13', '#16181d', '#1d2027'],
] as const;

test('the brand › has a colour that can be read on every ground of both themes', t => {
  for (const colour of [
    '#000000',
    '#ffffff',
    '#ffdd00',
    '#00e5ff',
    '#808080',
    '#0000ff',
    '#b0232d',
  ]) {
    const css = brandOf({ colour }).style?.bytes.toString() ?? '';
    const found = [...css.matchAll(/--([\w-]+):light-dark\((#[\da-f]{6}),(#[\da-f]{6})\)/g)];
    t.is(found.length, 5, css);
    for (const theme of [0, 1]) {
      const of = (named: string) => found.find(([, name]) => name === named)?.[theme + 2] ?? '';
      t.is(of('fill'), colour);
      t.true(contrast(of('fill-ink'), of('fill')) >= 4.5, css);
      t.true(contrast(of('fill-ink'), of('fill-hover')) >= 4.5, css);
      for (const ground of [...(GROUNDS[theme] ?? []), of('accent-tint')]) {
        t.true(contrast(of('accent'), ground) >= 4.5, `${colour} on ${ground}: ${css}`);
      }
    }
  }
});

/** By WCAG's definition. */
function contrast(one: string, other: string): number {
  const lights = [one, other].map(hex => {
    const [r = 0, g = 0, b = 0] = [1, 3, 5]
      .map(at => Number.parseInt(hex.slice(at, at + 2), 16) / 255)
      .map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  });
  return Math.max(...lights) / Math.min(...lights);
}

test('the brand › stands on every page, errors too, and its logo runs no script', async t => {
  const brand = { name: '<b>Studio</b>', colour: '#ffdd00', logoFile: fileOf('logo', SVG) };
  const opened = await openTestApp({ settings: { portal: { brand } } });
  t.teardown(() => opened.close());
  const { app } = opened;
  const accept = 'text/html';
  for (const url of ['/account/sign-in', '/account/nothing', '/account/links/x']) {
    const { body } = await app.inject({ url, headers: { accept } });
    t.regex(
      body,
      /<span>&lt;b>Studio&lt;\/b><\/span>|<span>&lt;b&gt;Studio&lt;\/b&gt;<\/span>/,
      url,
    );
    t.regex(body, /<img class="logo" src="\/account\/assets\/\w{16}\/brand\.svg"/, url);
    t.regex(body, /rel="stylesheet" href="\/account\/assets\/\w{16}\/brand\.css"/, url);
  }
  const { body } = await app.inject('/account/sign-in');
  for (const name of ['brand.svg', 'brand.css']) {
    const [address = ''] = new RegExp(`/account/assets/\\w+/${name}`).exec(body) ?? [];
    const { statusCode, headers } = await app.inject(address);
    t.is(statusCode, 200, address);
    t.regex(String(headers['content-security-policy']), /default-src 'none';.*sandbox$/);
    t.is(headers['x-content-type-options'], 'nosniff');
  }
});
