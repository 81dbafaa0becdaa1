/** Each changing method of batches, while the database's answer is lost or late. */
import { loseAnswers } from '@matting/core/test/losing-answers.ts';
import ava from 'ava';
import { BATCH_SUITE } from './batch-suite.ts';

loseAnswers(ava, BATCH_SUITE);
