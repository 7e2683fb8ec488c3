"""Furnishes a fresh moto server for a test, then lets it check signatures and policies.

    furnish.py URL ALLOWED_ACTION,...

Two instances, a volume that is attached to the first, and a user who may do the named actions only. Prints one line:
key id, secret key, first instance, second instance, volume.
"""

import json
import sys
import urllib.request

import boto3

URL, ACTIONS = sys.argv[1], sys.argv[2].split(",")
REGION = "eu-central-1"


def client(service):
    return boto3.client(
        service, endpoint_url=URL, region_name=REGION, aws_access_key_id="setup", aws_secret_access_key="setup"
    )


def user():
    iam = client("iam")
    iam.create_user(UserName="fence")
    statement = {"Effect": "Allow", "Action": ACTIONS, "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="fence", PolicyName="fence", PolicyDocument=policy)
    key = iam.create_access_key(UserName="fence")["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def machines():
    ec2 = client("ec2")
    zone = REGION + "a"
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    made = ec2.run_instances(ImageId=image, MinCount=2, MaxCount=2, Placement={"AvailabilityZone": zone})
    ids = [instance["InstanceId"] for instance in made["Instances"]]
    volume = ec2.create_volume(AvailabilityZone=zone, Size=1)["VolumeId"]
    ec2.attach_volume(VolumeId=volume, InstanceId=ids[0], Device="/dev/sdf")
    return *ids, volume


def check_from_now_on():
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(URL + "/moto-api/reset-auth", data=b"0", method="POST", headers=headers)
    urllib.request.urlopen(request).read()


furnished = *user(), *machines()
check_from_now_on()
print(*furnished)
