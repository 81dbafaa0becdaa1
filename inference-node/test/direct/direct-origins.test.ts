import test from 'ava';
import { parseOrigin, requirePutHeaders, requireUrlOf } from '../../src/direct/direct-origins.ts';

const ORIGIN = 'https://storage.example:9000';

test('an origin of the list › is written as the URL standard writes it', t => {
  t.is(parseOrigin('https://Storage.example:443'), 'https://storage.example');
  t.is(parseOrigin('http://10.0.0.7:9000'), 'http://10.0.0.7:9000');
  t.is(parseOrigin('http://[::1]:9000'), 'http://[::1]:9000');
});

for (const text of [
  'storage.example',
  'ftp://storage.example',
  'https://storage.example/',
  'https://storage.example/bucket',
  'https://storage.example?x',
  'https://storage.example#x',
  'https://user@storage.example',
  'https://',
]) {
  test(`an origin of the list › is not ${text}`, t => t.is(parseOrigin(text), undefined));
}

test('a reference › of the origin is taken as it was parsed', t => {
  const url = requireUrlOf(ORIGIN, `${ORIGIN}/bucket/a%2Fb?X-Amz-Signature=1%2B2`, 'url');
  t.deepEqual(url, { origin: ORIGIN, path: '/bucket/a%2Fb?X-Amz-Signature=1%2B2' });
});

for (const text of [
  '',
  '/bucket/key',
  'https://storage.example/key',
  'http://storage.example:9000/key',
  'https://storage.example:9000.evil.example/key',
  'https://storage.example:9000@evil.example/key',
  'https://169.254.169.254/latest/meta-data',
  'https://user:pass@storage.example:9000/key',
  'https://storage.example:9000/key#part',
  `${ORIGIN}/${'x'.repeat(8192)}`,
]) {
  test(`a reference › is not ${text.slice(0, 60)}`, t => {
    t.throws(() => requireUrlOf(ORIGIN, text, 'url'), { code: 'INVALID_REQUEST' });
  });
}

test('headers of a place › are those of an object, in lower case, with the length', t => {
  const given = {
    'Content-Type': 'image/png',
    'If-None-Match': '*',
    'x-amz-checksum-sha256': 'q',
  };
  t.deepEqual(requirePutHeaders(given, 7), {
    'content-length': '7',
    'content-type': 'image/png',
    'if-none-match': '*',
    'x-amz-checksum-sha256': 'q',
  });
  t.deepEqual(requirePutHeaders({ 'content-length': '7' }, 7), { 'content-length': '7' });
});

for (const headers of [
  { 'content-length': '8' },
  { authorization: 'Bearer x' },
  { host: 'evil.example' },
  { 'transfer-encoding': 'chunked' },
  { 'content-type': 'a\r\nx: y' },
  { cookie: 'a' },
  Object.fromEntries(Array.from({ length: 17 }, (_, index) => [`x-amz-${index}`, ''])),
]) {
  test(`headers of a place › are not ${JSON.stringify(headers).slice(0, 60)}`, t => {
    t.throws(() => requirePutHeaders(headers, 7), { code: 'INVALID_REQUEST' });
  });
}
