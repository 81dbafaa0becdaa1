import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { BucketUrlError, parseBucketUrl } from '../../../src/storage/bucket/bucket-url.ts';

describe('a bucket’s URL', () => {
  it('needs a bucket alone', () => {
    assert.deepEqual(parseBucketUrl('s3://pictures'), {
      bucket: 'pictures',
      prefix: '',
      pathStyle: false,
    });
  });

  it('has a prefix, which ends with one slash however it is written', () => {
    for (const url of ['s3://pictures/a/b', 's3://pictures/a/b/']) {
      assert.equal(parseBucketUrl(url).prefix, 'a/b/');
    }
  });

  it('carries what a store and its encryption need', () => {
    const url =
      's3://pictures?endpoint=http://127.0.0.1:7070&region=eu-central-1' +
      '&sse=aws:kms&sse-kms-key-id=arn:aws:kms:eu-central-1:1:key/2';
    assert.deepEqual(parseBucketUrl(url), {
      bucket: 'pictures',
      prefix: '',
      endpoint: new URL('http://127.0.0.1:7070'),
      region: 'eu-central-1',
      pathStyle: true,
      encryption: { algorithm: 'aws:kms', kmsKeyId: 'arn:aws:kms:eu-central-1:1:key/2' },
    });
  });

  it('names the bucket in the path of an endpoint’s URLs, and may say otherwise', () => {
    const of = (parameters: string) => parseBucketUrl(`s3://pictures?${parameters}`).pathStyle;
    assert.equal(of('endpoint=https://s3.example'), true);
    assert.equal(of('endpoint=https://s3.example&path-style=false'), false);
    assert.equal(of('path-style=true'), true);
  });

  const refused: readonly (readonly [what: string, url: string, said: RegExp])[] = [
    ['another scheme', 'https://pictures', /^of the form s3:\/\//],
    ['no URL', 'pictures', /^of the form s3:\/\//],
    ['a user', 's3://key@pictures', /credentials are/],
    ['a password', 's3://key:word@pictures/a', /credentials are/],
    ['a port', 's3://pictures:9000', /credentials are/],
    ['a fragment', 's3://pictures#a', /credentials are/],
    ['no bucket', 's3:///a', /name of a bucket/],
    ['a bucket of two letters', 's3://ab', /name of a bucket/],
    ['a bucket with an underscore', 's3://my_pictures', /name of a bucket/],
    ['an unknown parameter', 's3://pictures?acl=private', /known parameters only: endpoint,/],
    ['a parameter twice', 's3://pictures?region=a&region=b', /region once/],
    ['an empty parameter', 's3://pictures?region=', /region is not empty/],
    ['a region of another shape', 's3://pictures?region=EU%20Central', /whose region/],
    ['a double slash', 's3://pictures/a//b', /whose prefix/],
    ['a blank in the prefix', 's3://pictures/a%20b', /whose prefix/],
    ['a prefix that is too long', `s3://pictures/${'a'.repeat(513)}`, /whose prefix/],
    ['an endpoint with a path', 's3://pictures?endpoint=https://s3.example/a', /whose endpoint/],
    ['an endpoint with a user', 's3://pictures?endpoint=https://k@s3.example', /whose endpoint/],
    ['an endpoint of another scheme', 's3://pictures?endpoint=ftp://s3.example', /whose endpoint/],
    ['an endpoint that is none', 's3://pictures?endpoint=s3.example', /whose endpoint/],
    ['another path style', 's3://pictures?path-style=yes', /path-style is true or false/],
    ['another encryption', 's3://pictures?sse=aes', /sse is AES256 or aws:kms/],
    ['a key of no KMS', 's3://pictures?sse=AES256&sse-kms-key-id=1', /sse=aws:kms only/],
  ];
  for (const [what, url, said] of refused) {
    it(`is refused with ${what}`, () => {
      assert.throws(
        () => parseBucketUrl(url),
        (error: unknown) => error instanceof BucketUrlError && said.test(error.message),
      );
    });
  }

  it('is refused without its value being said', () => {
    assert.throws(
      () => parseBucketUrl('s3://AKIDEXAMPLE:verysecret@pictures'),
      (error: unknown) => error instanceof Error && !/AKID|verysecret/.test(error.message),
    );
  });
});
