/** The pages of API keys: the list, one key, a new one, and what is shown once. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ROTATION_OVERLAPS, type RotationOverlap } from '../../../domain/account/key-policy.ts';
import { may } from '../../../domain/account/roles.ts';
import type { ManageKeys } from '../../../services/keys/manage-keys.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { formOf, signedInOf } from '../session/signed-in.ts';
import { withQuery } from '../views/components/lists.ts';
import type { KeyRow } from '../views/keys/key-parts.ts';
import {
  type KeyFormErrors,
  type KeyFormValues,
  keyForm,
  keyPage,
} from '../views/keys/key-view.ts';
import { createLink, keysPage, madeKeyPage } from '../views/keys/keys-view.ts';
import { NEW_KEY_VALUES, readKeyForm, valuesOf } from './key-form.ts';

const KEYS_PATH = `${ACCOUNT_PATH}/keys`;
const READ = { config: { permission: 'keys.read' } } as const;
const MANAGE = { config: { permission: 'keys.manage' } } as const;

type OfKey = { Params: { id: string } };

/** @param baseUrl for the line that shows how to call the API */
export function registerKeyRoutes(
  account: FastifyInstance,
  keys: ManageKeys,
  baseUrl: string,
): void {
  const routes = new KeyRoutes(keys, baseUrl);
  account.get('/keys', READ, (request, reply) => routes.list(request, reply));
  account.get('/keys/new', MANAGE, (request, reply) => routes.formOfNew(request, reply));
  account.post('/keys', MANAGE, (request, reply) => routes.create(request, reply));
  account.get<OfKey>('/keys/:id', READ, (request, reply) =>
    routes.show(request, reply, request.params.id),
  );
  account.post<OfKey>('/keys/:id', MANAGE, (request, reply) =>
    routes.change(request, reply, request.params.id),
  );
  account.post<OfKey>('/keys/:id/rotate', MANAGE, (request, reply) =>
    routes.rotate(request, reply, request.params.id),
  );
  account.post<OfKey>('/keys/:id/revoke', MANAGE, (request, reply) =>
    routes.revoke(request, reply, request.params.id),
  );
}

interface FormState {
  readonly values: KeyFormValues;
  readonly errors: KeyFormErrors;
}

class KeyRoutes {
  readonly #keys: ManageKeys;
  readonly #baseUrl: string;

  constructor(keys: ManageKeys, baseUrl: string) {
    this.#keys = keys;
    this.#baseUrl = baseUrl;
  }

  async list(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { accountId, role } = signedInOf(request);
    const { after } = request.query as { after?: unknown };
    const { keys: rows, next } = await this.#keys.list(accountId, placeOf(after));
    const words = wordsOf(request);
    const mayManage = may(role, 'keys.manage');
    return renderPage(request, reply, {
      title: words.keys.title,
      lead: words.keys.lead,
      active: 'keys',
      ...(mayManage && rows.length > 0 ? { actions: createLink(words.keys.create) } : {}),
      main: keysPage({
        words,
        formats: formatsOf(request),
        rows,
        mayManage,
        next: next && withQuery(KEYS_PATH, { after: `${next.createdAtMs}-${next.id}` }),
        first: after === undefined ? undefined : KEYS_PATH,
      }),
    });
  }

  formOfNew(
    request: FastifyRequest,
    reply: FastifyReply,
    form: FormState = { values: NEW_KEY_VALUES, errors: {} },
  ): FastifyReply {
    const words = wordsOf(request);
    const { csrf } = signedInOf(request);
    const isWrong = Object.keys(form.errors).length > 0;
    return renderPage(request, reply, {
      title: words.keys.newTitle,
      lead: words.keys.newLead,
      active: 'keys',
      back: { href: KEYS_PATH, label: words.keys.title },
      status: isWrong ? 422 : 200,
      main: keyForm({ words, formats: formatsOf(request), csrf, ...form }),
    });
  }

  /** The key is on this answer and nowhere else. */
  async create(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const words = wordsOf(request);
    const { values, asked, errors } = readKeyForm(formOf(request), words, true);
    if (asked === undefined) return this.formOfNew(request, reply, { values, errors });
    const { name, expires, policy } = asked;
    const { accountId, actor } = signedInOf(request);
    const expiresIn = typeof expires === 'object' ? { expiresInMs: expires.inMs } : {};
    const made = await this.#keys.create(accountId, { name, policy, ...expiresIn }, actor);
    if (made === 'too-many') {
      const tooMany = { name: words.keys.errors.tooMany };
      return this.formOfNew(request, reply, { values, errors: tooMany });
    }
    return this.#showMade(request, reply, { row: made.key, token: made.token, rotated: false });
  }

  async show(
    request: FastifyRequest,
    reply: FastifyReply,
    id: string,
    form?: FormState,
  ): Promise<FastifyReply> {
    const { accountId, role, csrf } = signedInOf(request);
    const row = await this.#keys.find(accountId, id);
    if (row === undefined) throw new PageError('notFound');
    const words = wordsOf(request);
    return renderPage(request, reply, {
      title: row.name,
      active: 'keys',
      back: { href: KEYS_PATH, label: words.keys.title },
      status: form === undefined ? 200 : 422,
      said: words.keys.said,
      main: keyPage({
        words,
        formats: formatsOf(request),
        csrf,
        row,
        mayManage: may(role, 'keys.manage'),
        ...(form ?? { values: valuesOf(row), errors: {} }),
      }),
    });
  }

  async change(request: FastifyRequest, reply: FastifyReply, id: string): Promise<FastifyReply> {
    const { values, asked, errors } = readKeyForm(formOf(request), wordsOf(request), false);
    if (asked === undefined) return this.show(request, reply, id, { values, errors });
    const { name, expires, policy } = asked;
    const { accountId, actor } = signedInOf(request);
    const change = { name, policy, ...(expires === 'keep' ? {} : { expires }) };
    const changed = await this.#keys.change(accountId, id, change, actor);
    if (changed === undefined) throw new PageError('notFound');
    return reply.redirect(`${KEYS_PATH}/${changed.id}?said=changed`, 303);
  }

  async rotate(request: FastifyRequest, reply: FastifyReply, id: string): Promise<FastifyReply> {
    const overlap = formOf(request).text('overlap');
    if (!isOverlap(overlap)) throw new PageError('badForm');
    const { accountId, actor } = signedInOf(request);
    const made = await this.#keys.rotate(accountId, id, overlap, actor);
    if (made === undefined) throw new PageError('notFound');
    return this.#showMade(request, reply, { row: made.key, token: made.token, rotated: true });
  }

  async revoke(request: FastifyRequest, reply: FastifyReply, id: string): Promise<FastifyReply> {
    const { accountId, actor } = signedInOf(request);
    const revoked = await this.#keys.revoke(accountId, id, actor);
    if (revoked === undefined) throw new PageError('notFound');
    return reply.redirect(`${KEYS_PATH}/${revoked.id}?said=revoked`, 303);
  }

  #showMade(
    request: FastifyRequest,
    reply: FastifyReply,
    made: { readonly row: KeyRow; readonly token: string; readonly rotated: boolean },
  ): FastifyReply {
    const words = wordsOf(request);
    const { keys } = words;
    const { scopes } = made.row.policy;
    const maySubmit = scopes === undefined || scopes.includes('submit');
    return renderPage(request, reply, {
      title: made.rotated ? keys.rotatedTitle : keys.madeTitle,
      active: 'keys',
      back: { href: KEYS_PATH, label: keys.title },
      main: madeKeyPage({
        words,
        formats: formatsOf(request),
        ...made,
        curl: maySubmit ? curlOf(this.#baseUrl, made.token) : undefined,
      }),
    });
  }
}

function curlOf(baseUrl: string, token: string): string {
  return [
    `curl -sS ${baseUrl}/v1/matting`,
    `-H 'Authorization: Bearer ${token}'`,
    `-H 'Idempotency-Key: my-first-picture' -H 'Accept: image/png'`,
    '-F image_file=@photo.jpg -o cutout.png',
  ].join(' \\\n  ');
}

function isOverlap(text: string): text is RotationOverlap {
  return Object.hasOwn(ROTATION_OVERLAPS, text);
}

/** Where a page begins, as the address says it. @throws PageError badForm */
function placeOf(
  after: unknown,
): { readonly id: string; readonly createdAtMs: number } | undefined {
  if (after === undefined) return undefined;
  const [, createdAtMs, id] = /^(\d{1,15})-([0-9A-Za-z]{12})$/.exec(String(after)) ?? [];
  if (createdAtMs === undefined || id === undefined) throw new PageError('badForm');
  return { id, createdAtMs: Number(createdAtMs) };
}
