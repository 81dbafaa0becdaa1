/** Other packages use these of the outbox: they write messages into it and deliver mails. */
export {
  type AttemptResult,
  type ClaimedMessage,
  type DeliveryParts,
  MessageDelivery,
} from './deliver-messages.ts';
export type { DueMessage } from './due-messages.ts';
export { NOTIFICATION_STATUSES, type NotificationSummary } from './outbox-listing.ts';
export {
  type AccountEventRow,
  insertMail,
  insertWebhook,
  type NewMail,
  withdrawMails,
} from './outbox-store.ts';
export { nextWaitMs, type WebhookSchedule } from './webhook-schedule.ts';
