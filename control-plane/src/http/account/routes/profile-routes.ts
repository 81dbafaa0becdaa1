/** What people change about themselves: password, sessions, language, the account they act for. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Profile, Self } from '../../../services/people/profile.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { readCookie } from '../session/cookies.ts';
import { returnPathOf } from '../session/guard.ts';
import { PageError } from '../session/page-error.ts';
import { formOf, signedInOf } from '../session/signed-in.ts';
import { profilePage, sessionsPage } from '../views/people/profile-view.ts';
import { fill, isLanguage } from '../words/words.ts';
import { keepKnown, minutesOf } from './browser.ts';

const SELF = { config: { permission: 'self' } } as const;

export function registerProfileRoutes(account: FastifyInstance, profile: Profile): void {
  account.get('/profile', SELF, (request, reply) => renderProfile(request, reply, profile));
  account.post('/profile/password', SELF, async (request, reply) => {
    const form = formOf(request);
    const given = { current: form.text('current'), next: form.text('next') };
    const outcome = await profile.changePassword(selfOf(request), given);
    const { profile: words } = wordsOf(request);
    switch (outcome.kind) {
      case 'changed':
        keepKnown(reply, outcome.known);
        return reply.redirect(`${ACCOUNT_PATH}/profile?said=passwordChanged`, 303);
      case 'wrong':
        return renderProfile(request, reply, profile, { current: words.wrong });
      case 'bad-password':
        return renderProfile(request, reply, profile, { next: words.faults[outcome.fault] });
      case 'throttled': {
        reply.header('retry-after', String(Math.ceil(outcome.waitMs / 1000)));
        const current = fill(words.throttled, { minutes: minutesOf(outcome.waitMs) });
        return renderProfile(request, reply, profile, { current });
      }
      case 'overtaken':
        throw new PageError('staleForm');
      case 'impossible':
        throw new PageError('forbidden');
    }
  });
  account.post('/language', SELF, async (request, reply) => {
    const form = formOf(request);
    const language = form.text('language');
    if (!isLanguage(language)) throw new PageError('badForm');
    await profile.setLanguage(signedInOf(request), language);
    return reply.redirect(returnPathOf(form.text('back')) ?? ACCOUNT_PATH, 303);
  });
  account.post('/switch', SELF, async (request, reply) => {
    const secret = readCookie(request, 'session') ?? '';
    const isTheirs = await profile.switchAccount(secret, formOf(request).text('account'));
    if (!isTheirs) throw new PageError('notFound');
    return reply.redirect(ACCOUNT_PATH, 303);
  });
}

export function registerSessionRoutes(account: FastifyInstance, profile: Profile): void {
  account.get('/sessions', SELF, async (request, reply) => {
    const signedIn = signedInOf(request);
    const sessions = await profile.sessions(signedIn);
    const rows = sessions.map(one => ({ ...one, isThis: one.id === signedIn.sessionId }));
    const words = wordsOf(request);
    return renderPage(request, reply, {
      title: words.sessions.title,
      lead: words.sessions.lead,
      active: 'profile',
      said: words.sessions.said,
      main: sessionsPage({ words, formats: formatsOf(request), csrf: signedIn.csrf, rows }),
    });
  });
  account.post<{ Params: { id: string } }>('/sessions/:id/end', SELF, async (request, reply) => {
    const ended = await profile.endSession(signedInOf(request), request.params.id);
    if (!ended) throw new PageError('notFound');
    return reply.redirect(`${ACCOUNT_PATH}/sessions?said=ended`, 303);
  });
  account.post('/sessions/end-others', SELF, async (request, reply) => {
    await profile.endOtherSessions(signedInOf(request));
    return reply.redirect(`${ACCOUNT_PATH}/sessions?said=othersEnded`, 303);
  });
}

function selfOf(request: FastifyRequest): Self {
  const { userId, mail, sessionId, accountId, actor, method } = signedInOf(request);
  return { userId, mail, sessionId, accountId, actor, cameByLink: method === 'link' };
}

async function renderProfile(
  request: FastifyRequest,
  reply: FastifyReply,
  profile: Profile,
  errors: { readonly current?: string; readonly next?: string } = {},
): Promise<FastifyReply> {
  const signedIn = signedInOf(request);
  const { mayHavePassword } = await profile.view(selfOf(request));
  const words = wordsOf(request);
  const isWrong = errors.current !== undefined || errors.next !== undefined;
  return renderPage(request, reply, {
    title: words.profile.title,
    active: 'profile',
    status: isWrong ? 422 : 200,
    said: words.profile.said,
    main: profilePage({
      words,
      csrf: signedIn.csrf,
      mail: signedIn.mail,
      accountName: signedIn.accountName,
      roleName: words.roles[signedIn.role],
      mayHavePassword,
      asksForCurrent: signedIn.method !== 'link',
      errors,
    }),
  });
}
