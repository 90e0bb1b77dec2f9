"""What STS answers, in its XML."""

from __future__ import annotations

import datetime as dt

from shardway.aws.options import Credentials
from tests.aws.aws_servers import Reply

EXPIRY = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)
ASSUMED = Credentials("ASIAEXAMPLE", "assumed-secret", "assumed/token+with=signs==", EXPIRY.timestamp())

_ANSWER = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <{action}Result>
    <AssumedRoleUser>
      <AssumedRoleId>AROAEXAMPLE:shardway</AssumedRoleId>
      <Arn>arn:aws:sts::123456789012:assumed-role/reader/shardway</Arn>
    </AssumedRoleUser>
    <Credentials>
      <AccessKeyId>{key}</AccessKeyId>
      <SecretAccessKey>{secret}</SecretAccessKey>
      <SessionToken>{token}</SessionToken>
      <Expiration>{expiry}</Expiration>
    </Credentials>
    <PackedPolicySize>6</PackedPolicySize>
  </{action}Result>
  <ResponseMetadata><RequestId>c6104cbe-af31-11e0-8154-cbc7ccf896c7</RequestId></ResponseMetadata>
</{action}Response>
"""

_ERROR = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>
  <RequestId>request-sts</RequestId>
</ErrorResponse>
"""


def sts_answer(action: str = "AssumeRole", *, key: str = ASSUMED.access_key_id, expiry: dt.datetime = EXPIRY) -> Reply:
    text = _ANSWER.format(
        action=action,
        key=key,
        secret=ASSUMED.secret_access_key,
        token=ASSUMED.session_token,
        expiry=expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    return Reply(text.encode(), headers={"Content-Type": "text/xml"})


def sts_error(code: str, message: str = "no", status: int = 403) -> Reply:
    return Reply(_ERROR.format(code=code, message=message).encode(), status, {"Content-Type": "text/xml"})
