/** PUT /mcp/uploads/<token> stores the image for an address of create_upload. It needs no key. */
import { noteKnownAccount } from '@matting/core/http/header-checks.ts';
import type { HttpContext } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { readBody, requireBodyHead } from '@matting/http/bodies.ts';
import { bodyTypeOf } from '@matting/http/request-headers.ts';
import { wantBody } from '@matting/http/unread-bodies.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { IMAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { UploadStore } from './upload-store.ts';

export const UPLOADS_PATH = '/mcp/uploads';

type Services = Pick<CoreServices, 'uploads' | 'blobs' | 'manageKeys'>;
type Found = NonNullable<Awaited<ReturnType<UploadStore['findByToken']>>>;
type Put = FastifyRequest<{ Params: { token: string } }>;

export function registerUploadRoute(
  app: FastifyInstance,
  services: Services,
  store: UploadStore,
  { connections }: Pick<HttpContext, 'connections'>,
): void {
  const found = new WeakMap<FastifyRequest, Found>();
  /** Refuses before it reads the body. @throws ContractError NOT_FOUND */
  async function requireOpen(request: Put, reply: FastifyReply): Promise<void> {
    const upload = await store.findByToken(request.params.token);
    if (upload?.state !== 'open') throw noAddress(upload?.state);
    const key = await services.manageKeys.find(upload.accountId, upload.apiKeyId);
    if (key?.state !== 'active') throw noAddress('over');
    found.set(request, upload);
    noteKnownAccount(request, upload.accountId);
    if (!reply.raw.closed) {
      reply.raw.once('close', connections.enterSubmission(upload.accountId));
    }
  }
  app.put<{ Params: { token: string } }>(
    `${UPLOADS_PATH}/:token`,
    { onRequest: [requireOpen, requireFile] },
    async (request, reply) => {
      const upload = found.get(request);
      if (upload === undefined) throw new Error('an upload is read that nobody looked for');
      return await receive(request, reply, { ...services, store, upload });
    },
  );
}

/** curl -T sends no type. A program that sends a form or JSON expects another interface. */
const requireFile = requireBodyHead({
  accepted: 'image/*, application/octet-stream',
  wanted: 'the bytes of the image. With curl, send -T photo.jpg',
  bytesMaxOf: request => {
    if (request.headers['content-type'] === undefined) return IMAGE_BYTES_MAX;
    const type = bodyTypeOf(request);
    const isFile =
      type !== 'none' && /^(?:image\/|application\/octet-stream$)/.test(type?.type ?? '');
    return isFile ? IMAGE_BYTES_MAX : undefined;
  },
});

function noAddress(state: Found['state'] | undefined): ContractError {
  const why =
    state === 'received'
      ? 'An image has come to this address already. Use its image_id, or call'
      : 'This address is unknown or over. Call';
  return new ContractError('NOT_FOUND', `${why} create_upload for another address.`);
}

async function receive(
  request: FastifyRequest,
  reply: FastifyReply,
  { uploads, blobs, store, upload }: Services & { store: UploadStore; upload: Found },
): Promise<FastifyReply> {
  const { image, end } = uploads.beginBoth(upload.accountId, request.raw);
  try {
    wantBody(request, reply);
    image.takeBytes();
    await readBody(request.raw, { bytesMax: IMAGE_BYTES_MAX }, chunk => image.write(chunk));
    const { image: stored, sha256 } = await image.finish();
    if (stored instanceof ContractError) throw stored;
    await image.commit();
    const { blob, ...known } = stored;
    if (!(await store.received(upload.id, blob, { sha256, image: known }))) {
      await blobs.remove(blob);
      throw noAddress((await store.findByToken((request as Put).params.token))?.state);
    }
    const { format, width, height, bytes } = known;
    return reply.code(201).send({ image_id: upload.id, format, width, height, size_bytes: bytes });
  } finally {
    await end();
  }
}
