/** URLs by the kept signer, beside those of the SDK: nothing is asked of a store. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GetObjectCommand, PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import * as presigning from '@aws-sdk/s3-request-presigner';
import { BucketPresigner, type Signing } from '../../../src/storage/bucket/bucket-presigner.ts';

const DISPOSITION = 'attachment; filename="a (1)*.png"';
const SIGNING_DATE = new Date('2026-01-02T03:04:05Z');

const STORES = {
  'a store by its path': { endpoint: 'http://127.0.0.1:9000', forcePathStyle: true },
  'a bucket in the host': { endpoint: 'https://s3.example.com', forcePathStyle: false },
  'with a token': {
    endpoint: 'http://127.0.0.1:9000',
    forcePathStyle: true,
    sessionToken: 'to/k+',
  },
};

function clientOf(store: (typeof STORES)[keyof typeof STORES]): S3Client {
  const { sessionToken, ...place } = { sessionToken: undefined, ...store };
  const keys = { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'a secret' };
  const credentials = { ...keys, ...(sessionToken === undefined ? {} : { sessionToken }) };
  return new S3Client({ region: 'eu-test-1', credentials, ...place });
}

function readOf(client: S3Client, name: string): Signing {
  return {
    client,
    method: 'GET',
    name,
    query: { 'response-content-disposition': DISPOSITION },
    headers: {},
    options: () => ({ expiresIn: 60, signingDate: SIGNING_DATE }),
    bySdk: options => {
      const at = { Bucket: 'pictures', Key: `some prefix/${name}` };
      const command = new GetObjectCommand({ ...at, ResponseContentDisposition: DISPOSITION });
      return presigning.getSignedUrl(client, command, options);
    },
  };
}

function writeOf(client: S3Client, name: string, bytes: number): Signing {
  const headers = { 'content-length': String(bytes), 'if-none-match': '*' };
  const names = Object.keys(headers);
  return {
    client,
    method: 'PUT',
    name,
    query: {},
    headers,
    options: () => ({
      expiresIn: 60,
      signingDate: SIGNING_DATE,
      unhoistableHeaders: new Set(names),
      signableHeaders: new Set(names),
    }),
    bySdk: options => {
      const at = { Bucket: 'pictures', Key: `some prefix/${name}` };
      const command = new PutObjectCommand({ ...at, ContentLength: bytes, IfNoneMatch: '*' });
      return presigning.getSignedUrl(client, command, options);
    },
  };
}

function parts(url: string): unknown {
  const { origin, pathname, searchParams } = new URL(url);
  return { origin, pathname, query: Object.fromEntries(searchParams) };
}

for (const [name, store] of Object.entries(STORES)) {
  describe(`the kept signer: ${name}`, () => {
    const client = clientOf(store);
    const forms = {
      reads: (object: string) => readOf(client, object),
      writes: (object: string) => writeOf(client, object, object.length),
    };
    for (const [form, signingOf] of Object.entries(forms)) {
      it(`signs ${form} as the SDK does, which it asks once`, async () => {
        const presigner = new BucketPresigner(presigning);
        let asked = 0;
        for (const object of ['inputs/one', 'results/another-1', 'inputs/third']) {
          const signing = signingOf(object);
          const expected = await signing.bySdk(signing.options());
          const bySdk: Signing['bySdk'] = options => {
            asked += 1;
            return signing.bySdk(options);
          };
          assert.deepEqual(parts(await presigner.sign({ ...signing, bySdk })), parts(expected));
        }
        assert.equal(asked, 1);
      });
    }

    it('is kept at the second URL where the first was signed with other credentials', async () => {
      const presigner = new BucketPresigner(presigning);
      let asked = 0;
      for (const object of ['inputs/one', 'inputs/two', 'inputs/three']) {
        const signing = readOf(client, object);
        const bySdk: Signing['bySdk'] = async options => {
          asked += 1;
          const url = await signing.bySdk(options);
          return asked === 1 ? url.replace('AKIDEXAMPLE', 'AKIDBEFORE') : url;
        };
        await presigner.sign({ ...signing, bySdk });
      }
      assert.equal(asked, 2);
    });

    it('leaves to the SDK what it would sign otherwise', async () => {
      const presigner = new BucketPresigner(presigning);
      let asked = 0;
      for (const object of ['inputs/one', 'inputs/two']) {
        const signing = readOf(client, object);
        const bySdk: Signing['bySdk'] = async options => {
          asked += 1;
          return (await signing.bySdk(options)).replace('X-Amz-Expires=60', 'X-Amz-Expires=61');
        };
        assert.match(await presigner.sign({ ...signing, bySdk }), /X-Amz-Expires=61/);
      }
      assert.equal(asked, 2);
    });
  });
}
