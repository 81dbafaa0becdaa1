/** Other packages show these to the operator. */
export { type HourOfJobs, TIMED_MAX } from '../jobs/job-activity.ts';
export { type OperatorAccount, requireAccount } from './operate-accounts.ts';
export {
  ENDED_WITHIN_HOURS_DEFAULT,
  ENDED_WITHIN_HOURS_MAX,
  JOB_GROUPS,
  type OperatorJob,
  QUEUED_ACCOUNTS_MAX,
  type QueueView,
} from './operate-jobs.ts';
export { type OperatorNode, viewNodes } from './operate-nodes.ts';
export {
  notificationCursor,
  type OperatorNotification,
  type ResendOutcome,
} from './operate-webhooks.ts';
