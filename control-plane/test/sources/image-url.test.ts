import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { requireImageUrl } from '../../src/sources/image-url.ts';

const POLICY = { fetchPorts: [80, 443], allowPrivateAddresses: false };
const TRUSTED = { fetchPorts: [80, 443], allowPrivateAddresses: true };

function assertRefused(text: string, policy = POLICY): void {
  assert.throws(
    () => requireImageUrl(text, policy),
    (error: { code: string; retryable: boolean; fieldErrors: { field: string }[] }) => {
      assert.equal(error.code, 'INVALID_IMAGE_SOURCE');
      assert.equal(error.retryable, false);
      assert.deepEqual(
        error.fieldErrors.map(({ field }) => field),
        ['image_url'],
      );
      return true;
    },
  );
}

/** Every way to say a forbidden thing; the host ends up somewhere inside in each. */
const REFUSED: Record<string, readonly string[]> = {
  'no URL': ['', ' ', 'example.com/a.png', '127.0.0.1', '//example.com/a', 'http:///', 'http://'],
  'broken URL': ['http://[::1/', 'http://a b.com/', 'http://1.1.1.1:80:80/', 'http://a.com:65536/'],
  'control characters': [
    ...['https://example.com/\u0000', 'https://exa\tmple.com/', 'https://example.com/\n'],
    ...['https://example.com/\u007f', 'https://example.com/\u0085', '\rhttps://example.com/'],
  ],
  'other scheme': [
    ...['file:///etc/passwd', 'ftp://example.com/', 'gopher://example.com/', 'ws://example.com/'],
    ...['data:image/png;base64,AAAA', 'blob:http://example.com/1', 'javascript:alert(1)'],
    ...['jar:http://example.com!/a', 'unix:/var/run/docker.sock', 'view-source:http://a.com/'],
  ],
  userinfo: [
    ...['http://user@example.com/', 'http://user:word@example.com/', 'http://:word@example.com/'],
    ...['http://example.com@127.0.0.1/', 'http://127.0.0.1@example.com/'],
    ...['http://@example.com/', 'https://:@example.com/', ' HTTP:\\\\@example.com/', 'http:@a.com'],
  ],
  port: ['http://example.com:22/', 'http://example.com:0/', 'https://example.com:8443/'],
  'loopback, spelt': [
    ...['http://127.0.0.1/', 'http://127.1/', 'http://127.0.1/', 'http://2130706433/'],
    ...['http://0x7f000001/', 'http://0x7f.1/', 'http://0177.0.0.1/', 'http://017700000001/'],
    ...['http://127.0.0.1./', 'http://0/', 'http://0.0.0.0/', 'http://0x0/'],
    ...['http://①②⑦.⓪.⓪.①/', 'http://127。0。0。1/', 'http://%31%32%37.0.0.1/'],
    ...['http://127.0.0.1%2e/', 'http://12\t7.0.0.1/', 'http:127.0.0.1', 'http:\\\\127.0.0.1\\'],
    ...['http:////127.0.0.1/', 'http://127.0.0.1\\@example.com/', 'http://127.0.0.1#@a.com/'],
    ...[
      'http://127.0.0.1?@a.com/',
      ' http://127.0.0.1/ ',
      'HTTP://127.0.0.1/',
      'https://127.0.0.1/',
    ],
  ],
  'private and metadata': [
    ...['http://10.0.0.1/', 'http://172.16.0.1/', 'http://192.168.1.1/', 'http://3232235521/'],
    ...['http://169.254.169.254/latest/meta-data/', 'http://2852039166/', 'http://0xa9fea9fe/'],
    ...['http://168.63.129.16/', 'http://100.100.100.200/', 'http://255.255.255.255/'],
  ],
  IPv6: [
    ...['http://[::1]/', 'http://[::]/', 'http://[::ffff:127.0.0.1]/', 'http://[::ffff:7f00:1]/'],
    ...['http://[::127.0.0.1]/', 'http://[64:ff9b::7f00:1]/', 'http://[2002:7f00:1::]/'],
    ...['http://[fe80::1]/', 'http://[fe80::1%25eth0]/', 'http://[fd00:ec2::254]/'],
    ...['http://[0:0:0:0:0:0:0:1]/', 'http://[::1]./', 'http://[::1]:80/', 'http://[4000::1]/'],
  ],
  'a name that leads inside': [
    ...['http://localhost/', 'http://LOCALHOST/', 'http://localhost./', 'http://foo.localhost/'],
    ...['http://ｌｏｃａｌｈｏｓｔ/', 'http://metadata.google.internal/', 'http://metadata/'],
    ...['http://db/', 'http://kubernetes.default.svc.cluster.local/', 'http://printer.local./'],
    ...['http://router.home.arpa/', 'http://nas.lan/', 'http://wiki.intranet/'],
  ],
};

describe('image_url as text', () => {
  for (const [group, texts] of Object.entries(REFUSED)) {
    it(`refuses ${group}`, () => {
      for (const text of texts) assertRefused(text);
    });
  }

  it('refuses more than 2048 characters, and takes 2048', () => {
    const start = 'https://example.com/';
    assertRefused(start + 'a'.repeat(2049 - start.length));
    requireImageUrl(start + 'a'.repeat(2048 - start.length), POLICY);
  });

  it('takes public hosts on the usual ports', () => {
    for (const text of [
      'http://example.com/a.png',
      'https://example.com/a.png?x=1#y',
      'http://example.com:443/',
      'https://example.com:80/',
      'https://example.com./a.png',
      'https://bücher.example/ü.png',
      'http://1.1.1.1/',
      'http://[2606:4700:4700::1111]/',
      // Really the host example.com: a backslash is a slash.
      'http://example.com\\@127.0.0.1/',
    ]) {
      requireImageUrl(text, POLICY);
    }
  });

  it("follows the operator's ports", () => {
    const policy = { fetchPorts: [443, 8443], allowPrivateAddresses: false };
    requireImageUrl('https://example.com:8443/', policy);
    assertRefused('http://example.com/', policy);
  });

  it('on a trusted network takes any address and port, but no other scheme and no userinfo', () => {
    for (const text of ['http://127.0.0.1:9000/a', 'http://[::1]:1/', 'http://minio:9000/a.png']) {
      requireImageUrl(text, TRUSTED);
    }
    for (const text of ['file:///etc/passwd', 'http://user@127.0.0.1/', 'ftp://10.0.0.1/', '']) {
      assertRefused(text, TRUSTED);
    }
  });
});
