/** The contract keeps idempotency keys for 30 days. */
export const JOB_RETENTION_DAYS_MIN = 30;
export const JOB_RETENTION_DAYS_MAX = 3650;
