/** What an account's owners set for low balances. A secret is on the answer that made it alone. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { THRESHOLDS_MAX } from '../../../domain/account/balance-alerts.ts';
import type { AlertScope, ManageAlerts } from '../../../services/alerts/manage-alerts.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { ACCOUNT_PATH, renderPage } from '../page/render-page.ts';
import { formOf, signedInOf } from '../session/signed-in.ts';
import { type SettingsProps, settingsPage } from '../views/settings-view.ts';
import { fill, type Words } from '../words/words.ts';

const MANAGE = { config: { permission: 'settings.manage' } } as const;

export interface SettingsRouteServices {
  readonly alerts: ManageAlerts;
}

export function registerSettingsRoutes(
  account: FastifyInstance,
  { alerts }: SettingsRouteServices,
): void {
  const show = (request: FastifyRequest, reply: FastifyReply, more: Shown = {}) =>
    showSettings(request, reply, alerts, more);
  account.get('/settings', MANAGE, (request, reply) => show(request, reply));
  account.post('/settings/thresholds', MANAGE, async (request, reply) => {
    const typedThresholds = formOf(request).all('threshold');
    if (await alerts.setThresholds(scopeOf(request), typedThresholds)) {
      return said(reply, 'thresholds');
    }
    const { thresholdsWrong: thresholdsError } = wordsOf(request).settings;
    return show(request, reply, { typedThresholds, thresholdsError });
  });
  account.post('/settings/webhook', MANAGE, async (request, reply) => {
    const form = formOf(request);
    const change = { url: form.text('url'), newSecret: form.has('new_secret') };
    const outcome = await alerts.setWebhook(scopeOf(request), change);
    if (outcome.kind === 'set') {
      if (outcome.secret === undefined) return said(reply, 'webhook');
      return show(request, reply, { secret: outcome.secret });
    }
    const urlError = fill(wordsOf(request).settings.urlWrong, { detail: outcome.detail });
    return show(request, reply, { typedUrl: change.url, urlError });
  });
  account.post('/settings/webhook/remove', MANAGE, async (request, reply) => {
    await alerts.removeWebhook(scopeOf(request));
    return said(reply, 'webhookRemoved');
  });
  account.post('/settings/webhook/test', MANAGE, async (request, reply) => {
    const outcome = await alerts.sendTest(scopeOf(request));
    return said(reply, TEST_SAID[outcome]);
  });
}

const TEST_SAID = {
  sent: 'tested',
  'too-soon': 'tooSoon',
  'no-webhook': 'noWebhook',
  'used-up': 'usedUp',
} as const;

type Shown = Pick<
  SettingsProps,
  'typedThresholds' | 'thresholdsError' | 'typedUrl' | 'urlError' | 'secret'
>;

function scopeOf(request: FastifyRequest): AlertScope {
  const { accountId, accountName, actor } = signedInOf(request);
  return { accountId, accountName, actor };
}

function said(reply: FastifyReply, what: keyof Words['settings']['said']): FastifyReply {
  return reply.redirect(`${ACCOUNT_PATH}/settings?said=${what}`, 303);
}

async function showSettings(
  request: FastifyRequest,
  reply: FastifyReply,
  alerts: ManageAlerts,
  more: Shown,
): Promise<FastifyReply> {
  const { accountId, csrf } = signedInOf(request);
  const view = await alerts.view(accountId);
  const words = wordsOf(request);
  const isWrong = more.thresholdsError !== undefined || more.urlError !== undefined;
  return renderPage(request, reply, {
    title: words.settings.title,
    lead: words.settings.lead,
    active: 'settings',
    status: isWrong ? 422 : 200,
    said: words.settings.said,
    main: settingsPage({
      words,
      formats: formatsOf(request),
      csrf,
      thresholdsMax: THRESHOLDS_MAX,
      ...view,
      ...more,
    }),
  });
}
